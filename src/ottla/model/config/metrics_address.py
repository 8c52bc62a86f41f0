"""Checks the address of the metrics: others may reach it only if that is allowed."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.model.http_address import ADDRESS_FORMAT, parse_http_address

if TYPE_CHECKING:
    from ottla.model.config.broker import BrokerConfig


def metrics_errors(config: "BrokerConfig") -> Iterator[str]:
    text = config.get_str("ottla.metrics.address")
    if not text:
        return
    address = parse_http_address(text)
    if address is None:
        yield f"The address for --metrics (ottla.metrics.address) is {text!r}. {ADDRESS_FORMAT}"
    elif not config.get_bool("ottla.metrics.remote") and not address.is_loopback:
        yield (
            f"--metrics {text}: other machines may reach this address, and read the names of topics and groups. "
            "Use 127.0.0.1, or allow it with --metrics-remote (ottla.metrics.remote=true)."
        )
