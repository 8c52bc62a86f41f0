"""The data pipeline: files, a database and an archive into a raw topic, transformed and archived on Spark.

Every job is a Structured Streaming query. The broker knows nothing of this package, and it reaches a cluster over the
wire alone, so it runs on Apache Kafka too.
"""
