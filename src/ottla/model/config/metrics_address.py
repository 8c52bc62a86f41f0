"""Checks the address of the metrics: others may reach it only if that is allowed. Also that of client metrics."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.model.http_address import ADDRESS_FORMAT, parse_http_address

if TYPE_CHECKING:
    from ottla.model.config.broker import BrokerConfig


def metrics_errors(config: "BrokerConfig") -> Iterator[str]:
    url = config.get_str("ottla.telemetry.otlp.url")
    if url and not url.startswith(("http://", "https://")):
        yield (
            f"ottla.telemetry.otlp.url is {url!r}. Give the URL of an OTLP/HTTP receiver, "
            "as in http://127.0.0.1:4318/v1/metrics."
        )
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


def takes_client_metrics(config: "BrokerConfig") -> bool:
    """Whether somebody receives the metrics that clients push (KIP-714)."""
    return bool(config.get_str("ottla.metrics.address") or config.get_str("ottla.telemetry.otlp.url"))
