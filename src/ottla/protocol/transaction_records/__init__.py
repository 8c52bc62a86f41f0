"""The records of `__transaction_state` in Kafka's formats."""
