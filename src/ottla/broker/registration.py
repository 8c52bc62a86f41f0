"""What a node tells the controller when it registers: its addresses and the feature levels that it supports."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from ottla.env.network import Network
from ottla.model.config.listeners import SECURITY_PROTOCOLS
from ottla.model.config.listeners import Endpoint as ConfiguredEndpoint
from ottla.protocol.metadata_records.records import Endpoint, FeatureRange

_WILDCARDS = ("", "0.0.0.0", "::")


class Listener(Protocol):
    """An address in a registration request of Kafka's protocol."""

    @property
    def name(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def security_protocol(self) -> int: ...


class Feature(Protocol):
    """The levels of a feature in a registration request of Kafka's protocol."""

    @property
    def name(self) -> str: ...
    @property
    def min_supported_version(self) -> int: ...
    @property
    def max_supported_version(self) -> int: ...


def end_points(listeners: Iterable[Listener]) -> tuple[Endpoint, ...]:
    return tuple(
        Endpoint(name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol)
        for each in listeners
    )


def feature_ranges(features: Iterable[Feature]) -> tuple[FeatureRange, ...]:
    return tuple(
        FeatureRange(
            name=each.name,
            min_supported_version=each.min_supported_version,
            max_supported_version=each.max_supported_version,
        )
        for each in features
    )


def advertised_end_points(
    listeners: Sequence[ConfiguredEndpoint],
    advertised: Sequence[ConfiguredEndpoint],
    ports: Sequence[int],
    network: Network,
) -> tuple[Endpoint, ...]:
    """The addresses of `listeners`, which are bound to `ports`, for other nodes and clients.

    A listener that has no advertised address and is bound to all addresses of the machine gets the machine's name.
    """
    by_name = {each.name: each for each in advertised}
    found = []
    for listener, port in zip(listeners, ports, strict=True):
        shown = by_name.get(listener.name)
        host, shown_port = (shown.host, shown.port) if shown is not None else (listener.host, port)
        found.append(
            Endpoint(
                name=listener.name,
                host=network.host_name if host in _WILDCARDS else host,
                port=shown_port or port,
                security_protocol=SECURITY_PROTOCOLS.index(listener.security_protocol),
            )
        )
    return tuple(found)
