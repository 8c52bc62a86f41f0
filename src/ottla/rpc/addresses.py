"""Addresses of brokers, and the lists of them that users write."""

from typing import NamedTuple

_DEFAULT_PORT = 9092


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def parse_bootstrap_servers(servers: str) -> list[Address]:
    """Splits `bootstrap.servers` as librdkafka does: at commas, with an optional protocol, port 9092 by default."""
    found = []
    for server in filter(None, map(str.strip, servers.split(","))):
        host, colon, port = server.rpartition("://")[2].rpartition(":")
        if colon and port.isdigit():
            found.append(Address(host.strip("[]"), int(port)))
        else:
            found.append(Address(f"{host}{colon}{port}".strip("[]"), _DEFAULT_PORT))
    return found
