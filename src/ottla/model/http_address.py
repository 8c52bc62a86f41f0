"""The address of an HTTP endpoint, as users write it for `--metrics`."""

from typing import NamedTuple

ADDRESS_FORMAT = "Give HOST:PORT, as in 127.0.0.1:9404; port 0 takes a free one."


class HttpAddress(NamedTuple):
    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect."""
        import ipaddress  # slow to load, and seldom needed

        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_http_address(text: str) -> HttpAddress | None:
    """None if `text` is not HOST:PORT. An address of IPv6 may be in brackets."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not (port.isascii() and port.isdecimal()) or int(port) > 65535:
        return None
    return HttpAddress(host, int(port))
