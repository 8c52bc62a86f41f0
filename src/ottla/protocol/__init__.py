"""Kafka's wire protocol and the formats of internal records: framing, codecs, message versions."""
