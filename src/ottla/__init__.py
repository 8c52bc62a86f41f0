"""Ottla: a distributed log that speaks Apache Kafka's protocol and keeps Kafka's files."""

__version__ = "0.1.0"
