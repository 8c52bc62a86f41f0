"""`ottla.consumer` on a real cluster: no record is lost and order is kept, whatever members and handlers do."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Position
from tests.interop.brokers import RunningBroker
from tests.interop.librdkafka import create_topic, flush, read_records, wait_until

from ottla.consumer import ConsumerThreads, DeadLetterError, HandlerError, ParallelConsumer, Record, Retry

pytestmark = pytest.mark.contract

ROOT = Path(__file__).parents[2]
PARTITIONS = 6
PROTOCOLS = ["range", "cooperative-sticky", "consumer"]


class Journal:
    """A handler that writes down when each record began and ended, over all members of a group."""

    def __init__(self, pause_s: float = 0.0) -> None:
        self.pause_s = pause_s
        self.order: dict[tuple[int, bytes | None], list[int]] = defaultdict(list)
        self.times: dict[tuple[int, int], int] = defaultdict(int)
        self.overlaps: list[Record] = []
        self._under_way: set[tuple[int, bytes | None]] = set()
        self._lock = threading.Lock()

    def __call__(self, record: Record) -> None:
        lane = (record.partition, record.key)
        with self._lock:
            if lane in self._under_way:
                self.overlaps.append(record)
            self._under_way.add(lane)
        time.sleep(self.pause_s)
        with self._lock:
            self._under_way.discard(lane)
            self.order[lane].append(record.offset)
            self.times[record.partition, record.offset] += 1

    def __len__(self) -> int:
        return len(self.times)

    def was_in_order(self) -> bool:
        """Whether no record was handled while an earlier one of its key never had been; repeats may be."""
        return all(_first_times(offsets) == sorted(set(offsets)) for offsets in self.order.values())


def _first_times(offsets: Sequence[int]) -> list[int]:
    return list(dict.fromkeys(offsets))


class InProcesses:
    """A handler for processes: writes each handled record to a file of its process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, record: Record) -> None:
        time.sleep(0.002)
        with (self.folder / str(os.getpid())).open("a") as notes:
            notes.write(f"{record.partition} {record.offset}\n")

    def handled(self) -> set[tuple[int, int]]:
        lines = [line for path in self.folder.iterdir() for line in path.read_text().splitlines()]
        return {(int(partition), int(offset)) for partition, offset in map(str.split, lines)}

    def pids(self) -> list[int]:
        return [int(path.name) for path in self.folder.iterdir()]


def config_of(broker: RunningBroker, group: str, protocol: str = "cooperative-sticky") -> dict[str, Any]:
    config = {"bootstrap.servers": broker.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    if protocol == "consumer":
        return config | {"group.protocol": "consumer"}
    timing = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 500}
    return config | {"partition.assignment.strategy": protocol} | timing


def fill(broker: RunningBroker, topic: str, count: int, keys: int = 60) -> None:
    """A topic of several partitions with `count` records."""
    create_topic(broker.bootstrap, topic, partitions=PARTITIONS)
    fill_more(broker, topic, count, keys)


def fill_more(broker: RunningBroker, topic: str, count: int, keys: int = 60) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5})
    for n in range(count):
        producer.produce(topic, str(n).encode(), f"key-{n % keys}".encode())
    flush(producer)


def committed(broker: RunningBroker, group: str, topic: str) -> int:
    """The sum of the group's offsets over the partitions."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    try:
        positions = consumer.committed([Position(topic, p) for p in range(PARTITIONS)], timeout=30)
    finally:
        consumer.close()
    return sum(max(0, position.offset) for position in positions)


class Members:
    """Consumers that run beside each other and end with the test."""

    def __init__(self) -> None:
        self._running: dict[ParallelConsumer | ConsumerThreads, threading.Thread] = {}
        self.errors: list[BaseException] = []

    def start(self, member: ParallelConsumer | ConsumerThreads) -> ParallelConsumer | ConsumerThreads:
        thread = threading.Thread(target=self._run, args=(member,), daemon=True)
        self._running[member] = thread
        thread.start()
        return member

    def stop(self, member: ParallelConsumer | ConsumerThreads) -> None:
        member.stop()
        self.join(member)

    def join(self, member: ParallelConsumer | ConsumerThreads) -> None:
        thread = self._running.pop(member)
        thread.join(60)
        assert not thread.is_alive(), "run() did not return within 60 s"

    def stop_all(self) -> None:
        for member in self._running:
            member.stop()
        for member in list(self._running):
            self.join(member)

    def _run(self, member: ParallelConsumer | ConsumerThreads) -> None:
        try:
            member.run()
        except BaseException as error:
            self.errors.append(error)


@pytest.fixture
def members() -> Iterator[Members]:
    members = Members()
    yield members
    members.stop_all()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nothing_is_lost_and_keys_keep_their_order_while_members_come_and_go(
    broker: RunningBroker, topic_name: str, protocol: str, members: Members
) -> None:
    count = 6_000
    fill(broker, topic_name, count)
    journal = Journal(pause_s=0.004)

    def join() -> ParallelConsumer | ConsumerThreads:
        return members.start(
            ParallelConsumer(
                config_of(broker, topic_name, protocol),
                [topic_name],
                journal,
                concurrency=4,
                in_flight_max=40,
            )
        )

    first = join()
    wait_until(lambda: len(journal) > 300, "the first member handles records")
    second = join()
    wait_until(lambda: len(journal) > 900, "two members handle records")
    third = join()
    wait_until(lambda: len(journal) > 1_800, "three members handle records")
    members.stop(first)
    wait_until(lambda: len(journal) > 2_700, "two members are left")
    join()
    members.stop(second)
    wait_until(lambda: len(journal) > 3_600, "a fourth came and the second went")
    members.stop(third)
    wait_until(lambda: len(journal) == count, "every record is handled", timeout_s=60)
    members.stop_all()
    assert members.errors == []
    assert journal.was_in_order()
    assert journal.overlaps == []
    assert committed(broker, topic_name, topic_name) == count
    # Partitions went only after their records were finished and committed, so hardly any was handled twice.
    assert sum(journal.times.values()) < count * 1.05


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_consumers_in_threads_share_the_partitions_and_lose_nothing(
    broker: RunningBroker, topic_name: str, protocol: str, members: Members
) -> None:
    fill(broker, topic_name, 3_000)
    journal = Journal(pause_s=0.001)
    config = config_of(broker, topic_name, protocol)
    first = members.start(ConsumerThreads(config, [topic_name], journal, threads=2))
    wait_until(lambda: len(journal) > 300, "the first two threads handle records")
    members.start(ConsumerThreads(config, [topic_name], journal, threads=2))
    wait_until(lambda: len(journal) > 1_000, "four threads handle records")
    members.stop(first)
    wait_until(lambda: len(journal) == 3_000, "every record is handled")
    members.stop_all()
    assert members.errors == []
    assert journal.was_in_order()
    assert committed(broker, topic_name, topic_name) == 3_000


def test_a_crash_of_one_thread_is_raised_and_a_restart_goes_on_with_its_record(
    broker: RunningBroker, topic_name: str, members: Members
) -> None:
    fill(broker, topic_name, 600)
    journal = Journal()

    def handle(record: Record) -> None:
        if record.value == b"300":
            raise ValueError("no such customer")
        journal(record)

    config = config_of(broker, topic_name)
    crashing = ConsumerThreads(config, [topic_name], handle, threads=2, retry=Retry(attempts=1))
    members.start(crashing)
    members.join(crashing)
    (error,) = members.errors
    assert isinstance(error, HandlerError)
    assert error.record.value == b"300"
    members.start(ConsumerThreads(config, [topic_name], journal, threads=2))
    wait_until(lambda: len(journal) == 600, "every record is handled")


def test_poison_records_go_to_the_dead_letter_topic_and_the_rest_goes_on(
    broker: RunningBroker, topic_name: str, members: Members
) -> None:
    dead_letter_topic = create_topic(broker.bootstrap, f"{topic_name}.dead")
    fill(broker, topic_name, 1_000)
    journal = Journal()

    def handle(record: Record) -> None:
        if int(record.value or b"") % 100 == 7:
            raise ValueError(f"cannot read {record.value!r}")
        journal(record)

    consumer = members.start(
        ParallelConsumer(
            config_of(broker, topic_name),
            [topic_name],
            handle,
            concurrency=4,
            retry=Retry(attempts=2, backoff_s=0.01),
            dead_letter_topic=dead_letter_topic,
        )
    )
    dead = read_records(broker.bootstrap, dead_letter_topic, 10)
    wait_until(lambda: len(journal) == 990, "every other record is handled")
    members.stop(consumer)
    assert sorted(int(record.value() or b"") for record in dead) == list(range(7, 1_000, 100))
    for record in dead:
        sent: Any = record.headers() or []
        headers = {name: (value or b"").decode() for name, value in sent}
        partition, offset = int(headers["dead-letter.partition"]), int(headers["dead-letter.offset"])
        (origin,) = consume_one(broker, Position(topic_name, partition, offset))
        assert (origin.key(), origin.value()) == (record.key(), record.value())
        assert headers["dead-letter.topic"] == headers["dead-letter.group"] == topic_name
        assert headers["dead-letter.timestamp"] == str(origin.timestamp()[1])
        assert headers["dead-letter.attempts"] == "2"
        assert headers["dead-letter.error.type"] == "ValueError"
        assert headers["dead-letter.error.text"] == f"cannot read {record.value()!r}"
    assert committed(broker, topic_name, topic_name) == 1_000


def consume_one(broker: RunningBroker, position: Position) -> list[Any]:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "by-hand", "enable.auto.commit": False}
    )
    try:
        consumer.assign([position])
        return consumer.consume(1, timeout=30)
    finally:
        consumer.close()


def test_a_record_that_the_dead_letter_topic_rejects_is_not_committed(
    broker: RunningBroker, topic_name: str, members: Members
) -> None:
    small = {"max.message.bytes": "100"}
    dead_letter_topic = create_topic(broker.bootstrap, f"{topic_name}.dead", config=small)
    fill(broker, topic_name, 60, keys=1)

    def handle(record: Record) -> None:
        if record.value == b"40":
            raise ValueError("cannot read it")

    consumer = ParallelConsumer(
        config_of(broker, topic_name),
        [topic_name],
        handle,
        concurrency=2,
        retry=Retry(attempts=1),
        dead_letter_topic=dead_letter_topic,
    )
    members.start(consumer)
    members.join(consumer)
    (error,) = members.errors
    assert isinstance(error, DeadLetterError)
    assert dead_letter_topic in str(error)
    assert committed(broker, topic_name, topic_name) == 40


@pytest.mark.parametrize(
    ("protocol", "max_poll_interval_ms", "handler_s"), [("range", 6_000, 7.5), ("consumer", 1_500, 3.0)]
)
def test_a_handler_may_take_longer_than_max_poll_interval(
    broker: RunningBroker,
    topic_name: str,
    protocol: str,
    max_poll_interval_ms: int,
    handler_s: float,
    members: Members,
    caplog: pytest.LogCaptureFixture,
) -> None:
    fill(broker, topic_name, 12)
    journal = Journal(pause_s=handler_s)
    consumer = ParallelConsumer(
        config_of(broker, topic_name, protocol) | {"max.poll.interval.ms": max_poll_interval_ms},
        [topic_name],
        journal,
        concurrency=12,
        in_flight_max=12,
        order="none",
        drain_timeout_s=1.0,
        commit_interval_s=0.1,
    )
    members.start(consumer)
    wait_until(lambda: committed(broker, topic_name, topic_name) == 12, "every record is committed")
    assert sum(journal.times.values()) == 12, "the member was not put out of its group in between"
    assert caplog.records == []


def test_a_handler_process_that_is_killed_loses_no_record(
    broker: RunningBroker, topic_name: str, members: Members, tmp_path: Path
) -> None:
    fill(broker, topic_name, 3_000)
    handler = InProcesses(tmp_path)
    consumer = ParallelConsumer(
        config_of(broker, topic_name), [topic_name], handler, concurrency=3, processes=True
    )
    members.start(consumer)
    for left in (2_500, 1_500):
        wait_until(lambda left=left: len(handler.handled()) > 3_000 - left, "records are handled")  # type: ignore[misc]
        os.kill(next(filter(is_alive, handler.pids())), signal.SIGKILL)
        wait_until(lambda left=left: len(handler.handled()) > 3_300 - left, "others go on")  # type: ignore[misc]
    wait_until(lambda: len(handler.handled()) == 3_000, "every record is handled")
    members.stop(consumer)
    assert members.errors == []
    assert committed(broker, topic_name, topic_name) == 3_000
    assert all(not is_alive(pid) for pid in handler.pids()), "no handler process outlives its consumer"


def is_alive(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


class Programs:
    """Members that run as programs of their own, and end with the test."""

    def __init__(self, broker: RunningBroker, topic: str, folder: Path) -> None:
        self._arguments = [broker.bootstrap, topic, topic]
        self._folder = folder
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self) -> subprocess.Popen[bytes]:
        journal = self._folder / f"journal-{len(self.running)}"
        journal.touch()
        module = ("-m", "tests.interop.consumer_member")
        process = subprocess.Popen([sys.executable, *module, *self._arguments, str(journal)], cwd=ROOT)
        self.running.append(process)
        return process

    def handled(self, process: subprocess.Popen[bytes]) -> list[tuple[int, int]]:
        """(partition, offset) of each record, in order."""
        journal = self._folder / f"journal-{self.running.index(process)}"
        lines = journal.read_text().rpartition("\n")[0].splitlines()
        return [(int(partition), int(offset)) for partition, offset, _ in map(str.split, lines)]

    def all_handled(self) -> set[tuple[int, int]]:
        return {record for process in self.running for record in self.handled(process)}


@pytest.fixture
def programs(broker: RunningBroker, topic_name: str, tmp_path: Path) -> Iterator[Programs]:
    programs = Programs(broker, topic_name, tmp_path)
    yield programs
    for process in programs.running:
        process.kill()
        process.wait()


def test_a_member_that_is_killed_loses_no_record(
    broker: RunningBroker, topic_name: str, programs: Programs
) -> None:
    fill(broker, topic_name, 6_000)
    first, second = programs.start(), programs.start()
    wait_until(lambda: min(map(len, map(programs.handled, (first, second)))) > 100, "both handle records")
    first.kill()
    wait_until(lambda: len(programs.all_handled()) == 6_000, "the other handles what is left")


def test_a_member_that_was_away_past_its_session_commits_nothing_of_what_it_has_lost(
    broker: RunningBroker, topic_name: str, programs: Programs
) -> None:
    fill(broker, topic_name, 6_000)
    first = programs.start()
    wait_until(lambda: len(programs.handled(first)) > 100, "the first handles records")
    first.send_signal(signal.SIGSTOP)
    second = programs.start()
    wait_until(lambda: len(programs.all_handled()) == 6_000, "the second handles what is left")
    wait_until(lambda: committed(broker, topic_name, topic_name) == 6_000, "all is committed")
    first.send_signal(signal.SIGCONT)
    fill_more(broker, topic_name, 600)
    offsets: list[int] = []

    def all_is_committed() -> bool:
        offsets.append(committed(broker, topic_name, topic_name))
        return offsets[-1] == 6_600

    wait_until(all_is_committed, "what is new is committed")
    assert offsets == sorted(offsets), "the group's offsets never go back"
    second.send_signal(signal.SIGINT)
    fill_more(broker, topic_name, 600)
    wait_until(lambda: len(programs.all_handled()) == 7_200, "the first is a member again and handles all")
