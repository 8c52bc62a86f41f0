"""A broker that the tests of one file share."""

from collections.abc import Iterator

import pytest

from ottla.testing import Kafka


@pytest.fixture(scope="module")
def shared_kafka() -> Iterator[Kafka]:
    with Kafka() as kafka:
        yield kafka


@pytest.fixture
def broker(shared_kafka: Kafka) -> Iterator[Kafka]:
    """The shared broker, without the faults of other tests."""
    yield shared_kafka
    shared_kafka.clear_faults()
