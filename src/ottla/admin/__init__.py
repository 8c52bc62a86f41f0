"""What commands and the console do to any cluster, over the wire with confluent-kafka: Ottla and Apache Kafka alike."""
