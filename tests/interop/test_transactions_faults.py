"""Transactions while brokers and clients are killed and stopped: nothing is duplicated, nothing is lost."""

import contextlib
import json
import random
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from tests.interop.brokers import RunningBroker
from tests.interop.group_clients import PROTOCOLS, EventProcess, committed, produce_to_each
from tests.interop.librdkafka import create_topic, wait_until
from tests.interop.transaction_clients import (
    TRANSACTION_BROKER,
    Transactional,
    all_values,
    committed_values,
    last_stable_offset,
    numbers,
    wait_until_complete,
)

pytestmark = pytest.mark.contract

PARTITIONS = 3
COUNT = 1500
COPY_TIMEOUT_S = 90.0
# A member that was killed keeps its partitions until this timeout.
PATIENT_BROKER = TRANSACTION_BROKER | {"group.consumer.session.timeout.ms": "3000"}


class CopierProcess(EventProcess):
    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__([sys.executable, "-m", "tests.interop.transaction_copier", json.dumps(settings)])

    def name_of(self, event: dict[str, Any]) -> str:
        return str(event["event"])

    @property
    def copied(self) -> int:
        return sum(event["records"] for event in self.named("committed"))

    def close(self) -> None:
        self.process.terminate()
        self._ended()
        assert self.named("closed"), f"{self} did not close in order"


class Copiers:
    """Copiers from one topic to another. Copiers with the same number have the same transactional id."""

    def __init__(self, broker: RunningBroker, topic: str, group_id: str, protocol: str) -> None:
        self.source, self.target = topic, f"{topic}-copy"
        self._broker, self._group_id, self._protocol = broker, group_id, protocol
        self.running: dict[int, CopierProcess] = {}
        self._all: list[CopierProcess] = []

    def start(self, number: int) -> CopierProcess:
        common = {
            "bootstrap.servers": self._broker.bootstrap,
            "reconnect.backoff.max.ms": 200,
            # When all brokers are down, librdkafka 2.16 forgets them and starts again with the bootstrap servers, but
            # sends offsets to the coordinator that it has forgotten, until the request times out.
            "metadata.recovery.strategy": "none",
            "log_level": 0,
        }
        consumer = {
            **common,
            "group.id": self._group_id,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            **PROTOCOLS[self._protocol],
        }
        producer = {
            **common,
            "transactional.id": f"{self._group_id}-{number}",
            "linger.ms": 0,
        }
        settings = {
            "source": self.source,
            "target": self.target,
            "consumer": consumer,
            "producer": producer,
        }
        self.running[number] = CopierProcess(settings)
        self._all.append(self.running[number])
        return self.running[number]

    @property
    def copied(self) -> int:
        """As reported by the copiers."""
        return sum(copier.copied for copier in self._all)

    def wait_for(self, count: int) -> None:
        """Or for all records: the copiers may be faster than the test."""
        count = min(count, COUNT)
        try:
            wait_until(lambda: self.copied >= count, f"{count} records are copied", COPY_TIMEOUT_S)
        except AssertionError:
            said = "\n".join(map(str, self._all))
            raise AssertionError(f"{self.copied} of {count} records are copied:\n{said}") from None

    def is_done(self) -> bool:
        """By the offsets of the group: a copier that was killed may not have reported all that it copied."""
        try:
            done = [
                committed(self._broker.bootstrap, self._group_id, self.source, p) for p in range(PARTITIONS)
            ]
        except KafkaException:  # a coordinator that has just started is loading
            return False
        return done == [COUNT // PARTITIONS] * PARTITIONS

    def kill_all(self) -> None:
        for copier in self._all:
            copier.kill()


def commit_the_beginning(bootstrap: str, group_id: str, topic: str) -> None:
    """So that nobody asks where a partition begins. Where librdkafka 2.16 is answered that only when the partition has
    been taken from it (the broker was away), it asks again, fetches the partition that it does not have, and hands out
    its first records twice when it gets the partition back.
    """
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group_id})
    consumer.commit(offsets=[TopicPartition(topic, p, 0) for p in range(PARTITIONS)], asynchronous=False)
    consumer.close()


@contextlib.contextmanager
def copiers(broker: RunningBroker, topic: str, group_id: str, protocol: str) -> Iterator[Copiers]:
    for name in (topic, f"{topic}-copy"):
        create_topic(broker.bootstrap, name, partitions=PARTITIONS)
    produce_to_each(broker.bootstrap, topic, PARTITIONS, COUNT // PARTITIONS)
    commit_the_beginning(broker.bootstrap, group_id, topic)
    started = Copiers(broker, topic, group_id, protocol)
    try:
        yield started
    finally:
        started.kill_all()


def assert_copied_exactly_once(broker: RunningBroker, copying: Copiers) -> None:
    wait_until(copying.is_done, "all offsets are committed", COPY_TIMEOUT_S)
    for partition in range(PARTITIONS):
        wanted = numbers(0, COUNT // PARTITIONS)
        assert committed_values(broker.bootstrap, copying.target, partition) == wanted


@pytest.mark.parametrize("protocol", ["eager", "consumer"])
def test_copies_are_exact_even_if_copiers_and_broker_are_killed_and_stopped(
    own_broker: Callable[..., RunningBroker], topic_name: str, group_id: str, protocol: str
) -> None:
    broker = own_broker(set=PATIENT_BROKER)
    with copiers(broker, topic_name, group_id, protocol) as copying:
        copying.start(0)
        copying.start(1)
        copying.wait_for(100)
        copying.running[0].kill()
        copying.start(0)
        copying.wait_for(copying.copied + 100)
        broker.kill()
        broker.start()
        copying.wait_for(copying.copied + 100)
        copying.running[1].close()
        copying.start(1)
        copying.wait_for(copying.copied + 100)
        broker.restart()
        copying.wait_for(copying.copied + 100)
        copying.running[0].kill()
        broker.kill()
        broker.start()
        copying.start(0)  # it aborts the open transaction of its predecessor
        assert_copied_exactly_once(broker, copying)
        for partition in range(PARTITIONS):
            found = all_values(broker.bootstrap, copying.target, partition)
            assert len(found) >= COUNT // PARTITIONS


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["eager", "cooperative", "consumer"])
def test_copies_are_exact_through_many_kills_at_random(
    own_broker: Callable[..., RunningBroker], topic_name: str, group_id: str, protocol: str
) -> None:
    broker = own_broker(set=PATIENT_BROKER)
    chance = random.Random(447)
    with copiers(broker, topic_name, group_id, protocol) as copying:
        for number in range(3):
            copying.start(number)
        for _ in range(10):
            if copying.is_done():
                break
            copying.wait_for(min(copying.copied + 20, COUNT // 2))
            number = chance.randrange(3)
            match chance.randrange(4):
                case 0:
                    broker.kill()
                    broker.start()
                case 1:
                    broker.restart()
                case _:
                    copying.running[number].kill()
                    copying.start(number)
        assert_copied_exactly_once(broker, copying)


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_transaction_continues_after_a_restart_of_the_broker_and_is_committed_whole(
    own_broker: Callable[..., RunningBroker], topic_name: str, transactional_id: str, how: str
) -> None:
    broker = own_broker(set=TRANSACTION_BROKER)
    bootstrap = broker.bootstrap
    create_topic(bootstrap, topic_name, partitions=2)
    producer, other = (Transactional(bootstrap, f"{transactional_id}-{n}") for n in (1, 2))
    other.begin()
    other.send(topic_name, ["aborted"])
    other.abort()
    producer.begin()
    producer.send(topic_name, ["before"], 0)
    broker.kill() if how == "kill" else broker.stop()
    broker.start()
    assert (committed_values(bootstrap, topic_name), last_stable_offset(bootstrap, topic_name)) == ([], 2)
    producer.send(topic_name, ["after"], 0)
    producer.send(topic_name, ["after"], 1)
    producer.commit()
    assert committed_values(bootstrap, topic_name, 0) == ["before", "after"]
    assert committed_values(bootstrap, topic_name, 1) == ["after"]
    assert all_values(bootstrap, topic_name, 0) == ["aborted", "before", "after"]


def test_an_acknowledged_outcome_survives_a_kill_of_the_broker(
    own_broker: Callable[..., RunningBroker], topic_name: str, transactional_id: str
) -> None:
    """The response is sent when the outcome is in the log; the markers of 20 partitions follow."""
    broker = own_broker(set=TRANSACTION_BROKER)
    bootstrap, partitions = broker.bootstrap, 20
    create_topic(bootstrap, topic_name, partitions=partitions)
    committed_rounds: list[str] = []
    for number in range(4):
        producer = Transactional(bootstrap, transactional_id)
        producer.begin()
        for partition in range(partitions):
            producer.producer.produce(topic_name, str(number), partition=partition)
        if number % 2:
            producer.producer.abort_transaction(30)
        else:
            producer.producer.commit_transaction(30)
            committed_rounds.append(str(number))
        broker.kill()
        broker.start()
        wait_until_complete(bootstrap, transactional_id)
        for partition in range(partitions):
            assert committed_values(bootstrap, topic_name, partition) == committed_rounds


def test_the_transaction_of_a_producer_that_was_killed_is_aborted_by_its_successor_or_its_timeout(
    own_broker: Callable[..., RunningBroker], topic_name: str, transactional_id: str
) -> None:
    """The timeout counts from the beginning of the transaction, even if the broker is restarted meanwhile."""
    broker = own_broker(set=TRANSACTION_BROKER)
    bootstrap = broker.bootstrap
    create_topic(bootstrap, topic_name)
    began = time.monotonic()
    program = [sys.executable, "-m", "tests.interop.transaction_victim"]
    for number, timeout_ms in ((1, 60_000), (2, 4000)):
        process = VictimProcess(
            [*program, bootstrap, topic_name, f"{transactional_id}-{number}", str(timeout_ms)]
        )
        process.wait_for("open")
        process.kill()
    broker.restart()
    assert last_stable_offset(bootstrap, topic_name) == 0
    Transactional(bootstrap, f"{transactional_id}-1")
    wait_until_complete(bootstrap, f"{transactional_id}-2")
    assert time.monotonic() - began > 3
    assert last_stable_offset(bootstrap, topic_name) == 4
    assert (committed_values(bootstrap, topic_name), len(all_values(bootstrap, topic_name))) == ([], 2)


class VictimProcess(EventProcess):
    def name_of(self, event: dict[str, Any]) -> str:
        return str(event["event"])
