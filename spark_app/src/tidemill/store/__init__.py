"""Where bytes are: immutable objects, logs of objects that are created if absent, depots, leases.

Every durable step is the create of one object. Nothing here knows what a topology or a PState is; only `store.s3`
knows the S3 client.
"""
