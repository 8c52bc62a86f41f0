"""The records of `__consumer_offsets` in Kafka's formats."""
