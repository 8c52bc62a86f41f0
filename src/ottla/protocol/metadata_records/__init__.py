"""The records of `__cluster_metadata`, in Kafka's formats: their types in `records`, their bytes in `codec`."""
