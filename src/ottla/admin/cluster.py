"""A cluster as its clients see it: how to reach it, and what to say when it cannot be reached."""

import socket
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

T = TypeVar("T")
CONNECT_TIMEOUT_S = 3.0
REQUEST_TIMEOUT_S = 15.0
_NO_ANSWER = (KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE)

_UNKNOWN = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)


class ClusterError(Exception):
    """What was asked of a cluster was refused; the message names the thing and what to do."""


class UnreachableError(ClusterError):
    """No broker answers at all."""


class AddressError(ClusterError):
    """What was given as an address is none."""


class Cluster:
    """Connections to one cluster; the addresses in `bootstrap` are where to begin."""

    def __init__(self, bootstrap: str, properties: Mapping[str, Any] | None = None) -> None:
        """Raises UnreachableError, within seconds, where nothing listens at any of the addresses.

        `properties` are librdkafka's, for every client.
        """
        self.bootstrap = bootstrap
        self._properties = dict(properties or {})
        self._last_error = ""
        _connect_to_any(bootstrap)
        self.admin = AdminClient(self.client_config())

    def client_config(self, **settings: Any) -> dict[str, Any]:
        """For a producer, a consumer or an admin client; names with _ for the dots."""
        config = {
            "bootstrap.servers": self.bootstrap,
            "client.id": "ottla",
            # librdkafka would write to stderr what we say ourselves, in other words.
            "log_level": 0,
            "error_cb": self._remember,
            **self._properties,
        }
        return config | {name.replace("_", "."): value for name, value in settings.items()}

    def metadata(self) -> Any:
        try:
            return self.admin.list_topics(timeout=REQUEST_TIMEOUT_S)
        except KafkaException as error:
            raise self.error("The cluster's metadata cannot be had", error.args[0]) from None

    def partitions_of(self, topic: str) -> list[int]:
        """Raises ClusterError where there is no such topic; asking for the topic's metadata would create it."""
        futures = self.admin.describe_topics(TopicCollection([topic]))
        return sorted(partition.id for partition in self.result(futures[topic], f"Topic {topic}").partitions)

    def result(self, future: "Future[T]", what: str) -> T:
        """What a call of the admin client answered. `what` begins the sentence where it failed."""
        try:
            return future.result(REQUEST_TIMEOUT_S)
        except KafkaException as error:
            raise self.error(what, error.args[0]) from None
        except TimeoutError:
            raise UnreachableError(f"{what}: no answer within {REQUEST_TIMEOUT_S:.0f} s") from None

    def error(self, what: str, error: KafkaError) -> ClusterError:
        if error.code() in _NO_ANSWER:
            detail = self._last_error or error.str()
            return UnreachableError(
                f"{what}: the cluster at {self.bootstrap} accepts connections, but does not answer ({detail}). "
                "Is it a Kafka broker, and can the address that it advertises be reached from here?"
            )
        if error.code() in _UNKNOWN:
            return ClusterError(f"{what}: no such topic or partition. See: ottla topics list")
        reason = error.str().removeprefix("Broker: ").removeprefix("Local: ")
        return ClusterError(f"{what}: {reason} ({error.name()})")

    def _remember(self, error: KafkaError) -> None:
        self._last_error = error.str()


def _connect_to_any(bootstrap: str) -> None:
    reasons = []
    for address in bootstrap.split(","):
        host, port = _split(address.strip())
        try:
            with socket.create_connection((host, port), timeout=CONNECT_TIMEOUT_S):
                return
        except OSError as error:
            reasons.append(f"{address.strip()} ({_reason(error)})")
    raise UnreachableError(
        f"No broker listens at {', '.join(reasons)}. Start one with `ottla serve --listen {bootstrap.split(',')[0]}`, "
        "or name another with --bootstrap HOST:PORT or OTTLA_BOOTSTRAP."
    )


def _split(address: str) -> tuple[str, int]:
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdigit() or not host:
        raise AddressError(f"--bootstrap {address}: expected HOST:PORT, e.g. 127.0.0.1:9092")
    return host.strip("[]"), int(port)


def _reason(error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, TimeoutError):
        return f"no answer within {CONNECT_TIMEOUT_S:.0f} s"
    return error.strerror or str(error)
