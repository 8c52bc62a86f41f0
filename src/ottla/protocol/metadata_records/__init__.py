"""The records of `__cluster_metadata` in Kafka's formats: `records` has the types, `codec` encodes and decodes them."""
