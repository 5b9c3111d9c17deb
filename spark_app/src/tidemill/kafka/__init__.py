"""Apache Kafka as a source and as a sink, over librdkafka (`confluent-kafka`, the extra `kafka`).

`depot` reads ranges of a topic as an `ExternalDepot`, `sink` writes a microbatch as one transaction, `connection` has
what both need. It knows the words of `api` and `language` only, as a module of a user would; nothing else knows it.
"""
