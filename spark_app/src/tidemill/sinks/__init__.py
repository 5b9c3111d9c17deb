"""Sinks in other systems: PostgreSQL (`psycopg`, the extra `postgres`) and Apache Iceberg (`pyiceberg`, the extra
`iceberg`).

Each is an `ExternalSink`: it writes what committed microbatches appended to it, with the microbatch's ID, in one
transaction of its system. `records` says what both make of records, `deliveries` what they must refuse. It knows
`language` and `values` only, as a module of a user would; `graphs` writes whole results with it.
"""
