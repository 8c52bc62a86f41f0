"""What goes wrong below the level of Kafka's error codes."""


class MalformedRequest(Exception):
    """Bytes that are no request: there is nothing to answer, the connection closes."""
