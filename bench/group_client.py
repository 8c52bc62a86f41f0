"""Consumer groups of librdkafka, all members in one process and one thread: the time until a group is stable.

Settled means: every partition has one owner, everybody has a fair share, and has got a record since its last
assignment. A record goes to each partition all the time, so that a member that is ready has one at once.
"""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random
from statistics import mean
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from bench.group_wire import wait_for_coordinator

PROTOCOLS = {
    "cooperative": {"partition.assignment.strategy": "cooperative-sticky"},
    "consumer": {"group.protocol": "consumer"},
}
FEED_INTERVAL_S = 0.05
SETTLE_TIMEOUT_S = 120
FLUSH_TIMEOUT_S = 30
# A rebalance takes about a heartbeat interval, so joins come at random times in it, the same for both brokers.
PAUSE_S_MAX = 5.0
SEED = 848

Spec = dict[str, Any]


class Member:
    def __init__(self, spec: Spec) -> None:
        self.partitions: set[int] = set()
        self.has_record = False
        self.consumer = Consumer(
            {
                "bootstrap.servers": spec["bootstrap"],
                "group.id": spec["group"],
                "auto.offset.reset": "earliest",
                **PROTOCOLS[spec["protocol"]],
            }
        )
        self.consumer.subscribe(
            [spec["topic"]], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke
        )

    def poll(self) -> bool:
        message = self.consumer.poll(0)
        if message is None:
            return False
        error = message.error()
        if error is None:
            self.has_record = True
        elif not error.retriable():
            raise KafkaException(error)
        return True

    def _on_assign(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        if partitions:
            self.partitions.update(found.partition for found in partitions)
            self.has_record = False

    def _on_revoke(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.partitions.difference_update(found.partition for found in partitions)


class Group:
    def __init__(self, spec: Spec, members: int) -> None:
        self._spec = spec
        self._producer = Producer({"bootstrap.servers": spec["bootstrap"], "linger.ms": 0})
        self._producer.list_topics(spec["topic"], timeout=30)
        wait_for_coordinator(spec["bootstrap"], spec["group"])
        self._next_feed = 0.0
        self.began = time.monotonic()
        self.members = [Member(spec) for _ in range(members)]

    def join(self) -> float:
        """One more member joins. Returns the seconds until the group is settled again."""
        began = time.monotonic()
        self.members.append(Member(self._spec))
        self.settle()
        return time.monotonic() - began

    def settle(self) -> None:
        self._poll_until(self._is_settled, SETTLE_TIMEOUT_S)
        if not self._is_settled():
            held = [sorted(member.partitions) for member in self.members]
            raise RuntimeError(f"not settled within {SETTLE_TIMEOUT_S} s: members have {held}")

    def run_for(self, seconds: float) -> None:
        self._poll_until(lambda: False, seconds)

    def close(self) -> None:
        """Closes all members at once: one after the other, each would wait for the rebalance of the previous one."""
        with ThreadPoolExecutor(len(self.members)) as pool:
            for closing in [pool.submit(member.consumer.close) for member in self.members]:
                closing.result()
        self._producer.flush(FLUSH_TIMEOUT_S)

    def _poll_until(self, is_done: Callable[[], bool], timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not is_done() and time.monotonic() < deadline:
            self._feed()
            had_news = [member.poll() for member in self.members]
            if not any(had_news):
                time.sleep(0.001)

    def _feed(self) -> None:
        now = time.monotonic()
        if now >= self._next_feed:
            self._next_feed = now + FEED_INTERVAL_S
            for partition in range(self._spec["partitions"]):
                self._producer.produce(self._spec["topic"], b"fed", partition=partition)
            self._producer.poll(0)

    def _is_settled(self) -> bool:
        fair = self._spec["partitions"] // len(self.members)
        counts = [len(member.partitions) for member in self.members]
        return (
            all(member.has_record for member in self.members)
            and min(counts) >= fair
            and sum(counts) == self._spec["partitions"]
            and len(set().union(*(member.partitions for member in self.members))) == sum(counts)
        )


def group_ready(spec: Spec) -> dict[str, float]:
    """From the first consumer to a settled group of `members`."""
    group = Group(spec, spec["members"])
    group.settle()
    ready_s = time.monotonic() - group.began
    group.close()
    return {"ready_s": ready_s}


def group_join(spec: Spec) -> dict[str, float]:
    """`joins` times, one more member joins a settled group of `members` and leaves again."""
    random = Random(SEED)
    group = Group(spec, spec["members"])
    taken_s = []
    for _ in range(spec["joins"]):
        group.settle()
        group.run_for(random.uniform(0, PAUSE_S_MAX))
        taken_s.append(group.join())
        group.members.pop().consumer.close()
    group.close()
    return {"joined_s": mean(taken_s)}
