"""A real Kafka for tests: brokers in this process or in processes of their own, pytest fixtures, helpers and faults.

    with Kafka() as kafka:
        kafka.produce("orders", "3 apples")

docs/testing.md is the guide. Names are imported when they are used: pytest loads `ottla.testing.pytest_plugin` in every
run, also in those that need no broker.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.testing.async_kafka import AsyncKafka
    from ottla.testing.cluster import KafkaCluster
    from ottla.testing.errors import BrokerStoppedError
    from ottla.testing.helpers import Record
    from ottla.testing.kafka import Kafka

__all__ = ["AsyncKafka", "BrokerStoppedError", "Kafka", "KafkaCluster", "Record"]

_MODULES = {
    "AsyncKafka": "async_kafka",
    "BrokerStoppedError": "errors",
    "Kafka": "kafka",
    "KafkaCluster": "cluster",
    "Record": "helpers",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"ottla.testing.{_MODULES[name]}"), name)
