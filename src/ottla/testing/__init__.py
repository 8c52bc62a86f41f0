"""A real Kafka for tests: brokers in this process or in processes of their own, pytest fixtures, helpers and faults.

    with Kafka() as kafka:
        kafka.produce("orders", "3 apples")

docs/testing.md is the guide. Names are imported when they are used: pytest loads `ottla.testing.pytest_plugin` in every
run, also in those that need no broker.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.testing.async_kafka import AsyncKafka, AsyncKafkaCluster
    from ottla.testing.cluster import KafkaCluster
    from ottla.testing.errors import BrokerStoppedError
    from ottla.testing.helpers import Record
    from ottla.testing.kafka import Kafka

__all__ = ["AsyncKafka", "AsyncKafkaCluster", "BrokerStoppedError", "Kafka", "KafkaCluster", "Record"]

_MODULES = {
    "AsyncKafka": "async_kafka",
    "AsyncKafkaCluster": "async_kafka",
    "BrokerStoppedError": "errors",
    "Kafka": "kafka",
    "KafkaCluster": "cluster",
    "Record": "helpers",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    _import_kio()
    return getattr(import_module(f"ottla.testing.{_MODULES[name]}"), name)


def _import_kio() -> None:
    """Without hypothesis, which kio imports where it is installed: that takes as long as all other imports.

    kio only registers its types with it. So it does if the program has imported hypothesis before.
    """
    if "hypothesis" in sys.modules:
        return
    sys.modules["hypothesis"] = None  # type: ignore[assignment]
    try:
        import_module("kio.static.primitive")
    finally:
        del sys.modules["hypothesis"]
