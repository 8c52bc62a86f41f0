"""Errors for which Kafka has no error code."""


class MalformedRequest(Exception):
    """Bytes that are not a valid request. The broker closes the connection without a response."""
