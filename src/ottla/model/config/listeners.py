"""Parses `listeners` and `advertised.listeners`: NAME://host:port."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

_ENDPOINT = re.compile(r"([A-Za-z0-9_-]+)://(?:\[([0-9A-Fa-f:.%]+)\]|([^\[\]:/]*)):(\d{1,5})")
SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


class Endpoint(NamedTuple):
    """`host` is empty if the listener is bound to all addresses of the machine."""

    name: str
    host: str
    port: int
    security_protocol: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def parse_endpoints(config: str, items: Sequence[str], protocols: Mapping[str, str]) -> list[Endpoint]:
    """Raises ValueError if an item is malformed or its name has no security protocol."""
    endpoints = []
    for item in items:
        match = _ENDPOINT.fullmatch(item)
        if not match or int(match[4]) > 65535:
            raise ValueError(f"Invalid value {item} for configuration {config}: expected NAME://HOST:PORT")
        name = match[1].upper()
        if name not in protocols:
            raise ValueError(
                f"Invalid value {item} for configuration {config}: listener {name} has no security protocol; "
                f"set one in listener.security.protocol.map, e.g. {name}:PLAINTEXT"
            )
        endpoints.append(Endpoint(name, match[2] or match[3], int(match[4]), protocols[name]))
    return endpoints


def parse_protocol_map(text: str, controller_names: Sequence[str], *, is_default: bool) -> dict[str, str]:
    """Parses `listener.security.protocol.map`. With the default map, controller listeners are plaintext (KIP-595)."""
    protocols = dict.fromkeys(controller_names, "PLAINTEXT") if is_default else {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, separator, protocol = item.partition(":")
        if not separator or protocol.strip().upper() not in SECURITY_PROTOCOLS:
            raise ValueError(
                f"Invalid value {item} for configuration listener.security.protocol.map: expected NAME:PROTOCOL, "
                f"PROTOCOL one of {', '.join(SECURITY_PROTOCOLS)}"
            )
        protocols[name.strip().upper()] = protocol.strip().upper()
    return protocols


def duplicate_errors(endpoints: Sequence[Endpoint]) -> list[str]:
    """An error for each duplicate name and each duplicate address."""
    errors = []
    for index, endpoint in enumerate(endpoints):
        for other in endpoints[:index]:
            if other.name == endpoint.name:
                errors.append(f"Each listener must have a different name: {other} and {endpoint}")
            elif endpoint.port and (other.host, other.port) == (endpoint.host, endpoint.port):
                errors.append(f"Each listener must have a different address: {other} and {endpoint}")
    return errors
