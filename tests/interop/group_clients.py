"""Groups of real clients, each member a process: librdkafka's (`MemberProcess`) and Java's (`JavaMember`).

A member tells what happens to it as JSON events; a test waits until the events say what it wants to see.
"""

import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import ConsumerGroupDescription
from tests.interop.kafka_jars import java_command
from tests.interop.kio_client import KioClient, errors_in
from tests.interop.librdkafka import TIMEOUT_S, admin_of, flush, wait_until

INCREMENTAL_ALTER_CONFIGS = 44

Owned = set[tuple[str, int]]

# Sessions short enough to wait for their end, long enough for a busy machine.
SESSION_MS = 3000
HEARTBEAT_MS = 200
GROUP_BROKER = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "offsets.topic.num.partitions": "4",
}
CLASSIC = {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": HEARTBEAT_MS}
PROTOCOLS: dict[str, dict[str, Any]] = {
    "eager": {**CLASSIC, "partition.assignment.strategy": "range"},
    "cooperative": {**CLASSIC, "partition.assignment.strategy": "cooperative-sticky"},
    "consumer": {"group.protocol": "consumer"},
}


class EventProcess:
    """A process that prints one JSON event per line. It is killed by its pid at the end of the test."""

    def __init__(self, command: Sequence[str]) -> None:
        self.events: list[dict[str, Any]] = []
        self.unread: list[str] = []
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._reader = threading.Thread(target=self._read_events, daemon=True)
        self._reader.start()

    def kill(self) -> None:
        """kill -9; afterwards every event that it has printed is read."""
        self.process.kill()
        self._ended()

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def named(self, name: str) -> list[dict[str, Any]]:
        return [event for event in self.events if self.name_of(event) == name]

    def wait_for(self, name: str, more_than: int = 0) -> dict[str, Any]:
        """The newest event of that name, once there are more of them than `more_than`."""
        wait_until(lambda: len(self.named(name)) > more_than, f"{self} says {name!r}")
        return self.named(name)[-1]

    def name_of(self, event: dict[str, Any]) -> str:
        raise NotImplementedError

    def __str__(self) -> str:
        return f"member {self.process.pid} (so far: {self.events[-5:]}, {self.unread[-5:]})"

    def _ended(self) -> None:
        self.process.wait(TIMEOUT_S)
        self._reader.join(TIMEOUT_S)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()

    def _read_events(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                self.events.append(json.loads(line))
            except ValueError:
                self.unread.append(line)


class MemberProcess(EventProcess):
    """A confluent-kafka consumer; see `group_member` for its events."""

    def __init__(
        self,
        bootstrap: str,
        group_id: str,
        topics: Sequence[str],
        config: dict[str, Any],
        *,
        commits: bool = True,
    ) -> None:
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group_id,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            # A classic member finds new topics and partitions with its next metadata request.
            "topic.metadata.refresh.interval.ms": 300,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
            **config,
        }
        arguments = {"config": settings, "topics": list(topics), "commits": commits}
        super().__init__([sys.executable, "-m", "tests.interop.group_member", json.dumps(arguments)])

    def name_of(self, event: dict[str, Any]) -> str:
        return str(event["event"])

    @property
    def owned(self) -> Owned:
        owned: Owned = set()
        for event in list(self.events):
            partitions = {(topic, partition) for topic, partition in event.get("partitions", ())}
            owned = owned | partitions if event["event"] == "assigned" else owned - partitions
        return owned

    @property
    def records(self) -> list[tuple[str, int, int]]:
        """Topic, partition and offset of the records that it has processed."""
        return [(e["topic"], e["partition"], e["offset"]) for e in self.named("record")]

    def tell(self, do: str, **arguments: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self.process.stdin.flush()

    def commit(self, topic: str, partition: int, offset: int) -> str | None:
        """Commits. Returns the name of the error, None if the commit was accepted."""
        before = len(self.named("committed"))
        self.tell("commit", offset=[topic, partition, offset])
        error: str | None = self.wait_for("committed", before)["error"]
        return error

    def close(self) -> None:
        """Leaves the group, as a consumer does when it is closed."""
        self.tell("close")
        self._ended()
        assert self.named("closed"), f"{self} did not close in order"


class JavaMember(EventProcess):
    """Kafka's VerifiableConsumer, a Java consumer; `arguments` are those of its command line on how to read."""

    def __init__(self, libs: Path, bootstrap: str, group_id: str, topic: str, *arguments: str) -> None:
        common = ("--bootstrap-server", bootstrap, "--group-id", group_id, "--topic", topic)
        super().__init__(
            java_command(libs, "org.apache.kafka.tools.VerifiableConsumer", *common, *arguments, "--verbose")
        )

    def name_of(self, event: dict[str, Any]) -> str:
        return str(event["name"])

    @property
    def owned(self) -> Owned:
        owned: Owned = set()
        for event in list(self.events):
            partitions = {
                (p["topic"], p["partition"]) for p in event.get("partitions", ()) if "count" not in p
            }
            if event["name"] == "partitions_assigned":
                owned |= partitions
            elif event["name"] == "partitions_revoked":
                owned -= partitions
        return owned

    @property
    def records(self) -> list[tuple[str, int, int]]:
        return [(e["topic"], e["partition"], e["offset"]) for e in self.named("record_data")]

    def close(self) -> None:
        """SIGTERM: it leaves the group."""
        self.process.terminate()
        self._ended()


AnyMember = MemberProcess | JavaMember


class Members:
    """The members that a test has started."""

    def __init__(self) -> None:
        self._started: list[AnyMember] = []

    def start(
        self,
        bootstrap: str,
        group_id: str,
        topics: str | Sequence[str],
        protocol: str,
        *,
        commits: bool = True,
        **config: object,
    ) -> MemberProcess:
        """`protocol` is one of PROTOCOLS; `config` has other settings, with underscores for dots."""
        settings = PROTOCOLS[protocol] | {name.replace("_", "."): value for name, value in config.items()}
        names = [topics] if isinstance(topics, str) else topics
        member = MemberProcess(bootstrap, group_id, names, settings, commits=commits)
        self._started.append(member)
        return member

    def start_java(self, *arguments: Any) -> JavaMember:
        member = JavaMember(*arguments)
        self._started.append(member)
        return member

    def kill_all(self) -> None:
        for member in self._started:
            member.kill()


def wait_for_owners(
    members: Iterable[AnyMember],
    wanted: Owned,
    each: int | None = None,
    *,
    at_least: int = 0,
    timeout_s: float = TIMEOUT_S,
) -> None:
    """Waits until the members own `wanted` together without overlap, each with its share."""
    members = list(members)

    def is_divided() -> bool:
        owned = [member.owned for member in members]
        return (
            sum(map(len, owned)) == len(wanted)
            and set().union(*owned) == wanted
            and all(len(part) >= at_least if each is None else len(part) == each for part in owned)
        )

    try:
        wait_until(is_divided, "the partitions are divided", timeout_s)
    except AssertionError:
        shares = "\n".join(f"{sorted(member.owned)}: {member}" for member in members)
        raise AssertionError(f"{sorted(wanted)} are not divided:\n{shares}") from None


def wait_for_records(members: Iterable[AnyMember], count: int, timeout_s: float = TIMEOUT_S) -> None:
    members = list(members)

    def processed() -> int:
        return len({record for member in members for record in member.records})

    try:
        wait_until(lambda: processed() >= count, f"{count} records are processed", timeout_s)
    except AssertionError:
        said = "\n".join(map(str, members))
        raise AssertionError(f"{processed()} of {count} records are processed:\n{said}") from None


def all_records(members: Iterable[AnyMember]) -> list[tuple[str, int, int]]:
    return sorted(record for member in members for record in member.records)


def partitions_of(topic: str, count: int) -> Owned:
    return {(topic, partition) for partition in range(count)}


def produce_to_each(bootstrap: str, topic: str, partitions: int, count: int) -> None:
    """`count` records to each partition."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        for partition in range(partitions):
            producer.produce(topic, str(number).encode(), partition=partition)
    flush(producer)


def committed(bootstrap: str, group_id: str, topic: str, partition: int = 0) -> int | None:
    """The committed offset, None if there is none."""
    return committed_with_metadata(bootstrap, group_id, topic, partition)[0]


def committed_with_metadata(
    bootstrap: str, group_id: str, topic: str, partition: int = 0
) -> tuple[int | None, str | None]:
    asked = ConsumerGroupTopicPartitions(group_id, [TopicPartition(topic, partition)])
    admin = admin_of(bootstrap)
    answers = admin.list_consumer_group_offsets([asked], request_timeout=TIMEOUT_S)
    (found,) = answers[group_id].result(TIMEOUT_S).topic_partitions
    return (found.offset if found.offset >= 0 else None), found.metadata


def describe(bootstrap: str, group_id: str) -> ConsumerGroupDescription:
    admin = admin_of(bootstrap)
    return admin.describe_consumer_groups([group_id], request_timeout=TIMEOUT_S)[group_id].result(TIMEOUT_S)


def wait_for_state(bootstrap: str, group_id: str, state: str) -> ConsumerGroupDescription:
    wait_until(lambda: describe(bootstrap, group_id).state.name == state, f"group {group_id} is {state}")
    return describe(bootstrap, group_id)


def set_group_config(bootstrap: str, group_id: str, name: str, value: str) -> None:
    """Sets a config of the resource type GROUP (KIP-848), which librdkafka does not support yet."""
    configs = [{"name": name, "config_operation": 0, "value": value}]
    resource = {"resource_type": 32, "resource_name": group_id, "configs": configs}
    with contextlib.closing(KioClient(bootstrap)) as client:
        answer = client.ask(INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False)
    if errors_in(answer):
        raise AssertionError(f"{name} of group {group_id} cannot be set to {value}: {answer}")


def drive(consumer: Consumer, until: Callable[[], bool], what: str, timeout_s: float = TIMEOUT_S) -> None:
    """Polls a consumer of this process and drops its records, until the condition is true."""
    deadline = time.monotonic() + timeout_s
    while not until():
        consumer.poll(0.05)
        if time.monotonic() > deadline:
            raise AssertionError(f"polled {timeout_s:.0f} s in vain until {what}")
