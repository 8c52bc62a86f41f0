"""The fakes that take the place of confluent-kafka's clients, as they are made."""

from typing import Any

import pytest
from tests.unit.consumer.fake_consumer import FakeConsumer, FakeProducer


@pytest.fixture
def consumers(monkeypatch: pytest.MonkeyPatch) -> list[FakeConsumer]:
    """Each consumer that is made; it is assigned partitions 0 and 1 of topic t."""
    made: list[FakeConsumer] = []

    def make(config: dict[str, Any]) -> FakeConsumer:
        consumer = FakeConsumer(config)
        consumer.assign(0, 1)
        made.append(consumer)
        return consumer

    monkeypatch.setattr("ottla.consumer.member.Consumer", make)
    return made


@pytest.fixture
def producers(monkeypatch: pytest.MonkeyPatch) -> list[FakeProducer]:
    made: list[FakeProducer] = []

    def make(config: dict[str, Any]) -> FakeProducer:
        made.append(FakeProducer(config))
        return made[-1]

    monkeypatch.setattr("ottla.consumer.dead_letters.Producer", make)
    return made
