"""The pytest plugin: fixtures with a real Kafka, and the broker's log in the report of a failing test.

pytest imports this module in every run, so it imports nothing of Ottla before a fixture is used.
"""

import re
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ottla.testing.cluster import KafkaCluster
    from ottla.testing.kafka import Kafka

_LOG_CHARACTERS_MAX = 20_000
_TOPIC_NAME_MAX = 200
_kafka_key: pytest.StashKey["Kafka"] = pytest.StashKey()
_position_key: pytest.StashKey[int] = pytest.StashKey()
_clusters_key: pytest.StashKey[list["KafkaCluster"]] = pytest.StashKey()


@pytest.fixture(scope="session")
def kafka_config() -> dict[str, object]:
    """The configs of the fixture `kafka`. Override it in a conftest.py."""
    return {}


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest, kafka_config: dict[str, object]) -> Iterator["Kafka"]:
    """A broker for all tests of this process; `kafka.bootstrap` is its address."""
    from ottla.testing import Kafka

    with Kafka(kafka_config) as broker:
        request.config.stash[_kafka_key] = broker
        yield broker
        del request.config.stash[_kafka_key]


@pytest.fixture
def kafka_topic(kafka: "Kafka", request: pytest.FixtureRequest) -> str:
    """The name of a new topic with one partition, for one test."""
    import uuid

    test = re.sub(r"[^a-zA-Z0-9._-]+", "-", request.node.name)[:_TOPIC_NAME_MAX].strip("-")
    return kafka.create_topic(f"{test}-{uuid.uuid4().hex[:8]}")


@pytest.fixture
def kafka_cluster(request: pytest.FixtureRequest) -> "Iterator[Callable[..., KafkaCluster]]":
    """A function that starts a cluster, `kafka_cluster(3)`, which ends with the test."""
    from ottla.testing import KafkaCluster

    clusters = request.node.stash.setdefault(_clusters_key, [])
    with ExitStack() as started:

        def start(nodes: int = 3, **options: Any) -> KafkaCluster:
            cluster = KafkaCluster(nodes, **options)
            started.callback(cluster.close)
            clusters.append(cluster)
            cluster.start()
            return cluster

        yield start


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    broker = item.config.stash.get(_kafka_key, None)
    if broker is not None:
        item.stash[_position_key] = broker.log.position


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    """Removes faults after each test, and starts the broker if the test has stopped it: all tests share it.

    Here, and not around the whole protocol: an error is that of the test and does not end the session, and a test that
    runs again, as with pytest-rerunfailures, begins without faults.
    """
    try:
        return (yield)
    finally:
        broker = item.config.stash.get(_kafka_key, None)
        if broker is not None:
            broker.clear_faults()
            broker.free_disk()
            broker.start()  # unless it runs


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        report.sections += [(title, text[-_LOG_CHARACTERS_MAX:]) for title, text in _logs(item) if text]
    return report


def _logs(item: pytest.Item) -> Iterator[tuple[str, str]]:
    """What the brokers that a test uses have logged during the test, with titles."""
    broker = item.config.stash.get(_kafka_key, None)
    if broker is not None and "kafka" in getattr(item, "fixturenames", ()):
        yield "Kafka's log", broker.log.text(item.stash.get(_position_key, 0))
    for cluster in item.stash.get(_clusters_key, []):
        for node in cluster.nodes:
            yield f"log of Kafka's node {node}", cluster.log(node)
