"""A connection to a cluster, and the errors for people when it cannot be reached or rejects a request."""

import socket
from collections.abc import Mapping
from concurrent.futures import Future
from functools import cached_property
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

_T = TypeVar("_T")
REQUEST_TIMEOUT_S = 15.0
_CONNECT_TIMEOUT_S = 3.0
_NO_RESPONSE = (
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
)
_UNKNOWN = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)


class ClusterError(Exception):
    """A cluster rejected a request. The message says what failed, for which thing, and what to do."""


class UnreachableError(ClusterError):
    """No broker responds."""


class UnknownTopicError(ClusterError):
    """There is no such topic or partition."""


class AddressError(ClusterError):
    """An address that the user gave is malformed."""


class Cluster:
    """One cluster, found through the addresses in `bootstrap`."""

    def __init__(self, bootstrap: str, properties: Mapping[str, Any] | None = None) -> None:
        """Raises UnreachableError within seconds if nothing listens at any of the addresses.

        `properties` are librdkafka's, and apply to every client.
        """
        self.bootstrap = bootstrap
        self._properties = dict(properties or {})
        self._last_error = ""
        _connect_to_any(bootstrap)

    @cached_property
    def admin(self) -> AdminClient:
        return AdminClient(self.client_config())

    def client_config(self, **settings: Any) -> dict[str, Any]:
        """The config of a producer, a consumer or an admin client. `settings` have underscores for dots."""
        config = {
            "bootstrap.servers": self.bootstrap,
            "client.id": "ottla",
            # Our own messages say the same: librdkafka would log it to stderr as well.
            "log_level": 0,
            "error_cb": self._remember_error,
            **self._properties,
        }
        return config | {name.replace("_", "."): value for name, value in settings.items()}

    def metadata(self) -> Any:
        try:
            return self.admin.list_topics(timeout=REQUEST_TIMEOUT_S)
        except KafkaException as error:
            raise self.error("The cluster's metadata cannot be read", error.args[0]) from None

    def partitions_of(self, topic: str) -> list[int]:
        """Raises ClusterError if the topic does not exist. Unlike a Metadata request, this does not create it."""
        futures = self.admin.describe_topics(TopicCollection([topic]))
        return sorted(partition.id for partition in self.result(futures[topic], f"Topic {topic}").partitions)

    def result(self, future: "Future[_T]", what: str) -> _T:
        """Waits for the result of an admin client. Raises ClusterError, whose message begins with `what`."""
        try:
            return future.result(REQUEST_TIMEOUT_S)
        except KafkaException as error:
            raise self.error(what, error.args[0]) from None
        except TimeoutError:
            raise UnreachableError(f"{what}: no response within {REQUEST_TIMEOUT_S:.0f} s") from None

    def error(self, what: str, error: KafkaError) -> ClusterError:
        if error.code() in _NO_RESPONSE:
            detail = self._last_error or error.str()
            return UnreachableError(
                f"{what}: the cluster at {self.bootstrap} accepts connections, but does not respond ({detail}). "
                "Check that it is a Kafka broker, and that its advertised address can be reached from here."
            )
        if error.code() in _UNKNOWN:
            return UnknownTopicError(f"{what}: no such topic or partition. See: ottla topics list")
        reason = error.str().removeprefix("Broker: ").removeprefix("Local: ")
        return ClusterError(f"{what}: {reason} ({error.name()})")

    def _remember_error(self, error: KafkaError) -> None:
        self._last_error = error.str()


def _connect_to_any(bootstrap: str) -> None:
    reasons = []
    for address in bootstrap.split(","):
        host, port = _parse_address(address.strip())
        # A host in bytes needs no codec. The one for a str takes five milliseconds to import, at every start.
        name = host.encode() if host.isascii() else host
        try:
            # Its type names str alone; getaddrinfo, which it calls, takes bytes too.
            with socket.create_connection((name, port), timeout=_CONNECT_TIMEOUT_S):  # type: ignore[arg-type]
                return
        except OSError as error:
            reasons.append(f"{address.strip()} ({_reason(error)})")
    raise UnreachableError(
        f"No broker listens at {', '.join(reasons)}. Start one with `ottla serve --listen {bootstrap.split(',')[0]}`, "
        "or name another with --bootstrap HOST:PORT or OTTLA_BOOTSTRAP."
    )


def _parse_address(address: str) -> tuple[str, int]:
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdigit() or not host:
        raise AddressError(f"--bootstrap {address}: expected HOST:PORT, e.g. 127.0.0.1:9092")
    return host.strip("[]"), int(port)


def _reason(error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, TimeoutError):
        return f"no response within {_CONNECT_TIMEOUT_S:.0f} s"
    return error.strerror or str(error)
