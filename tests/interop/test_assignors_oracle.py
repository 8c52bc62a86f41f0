"""Our assignors compared with Kafka's: `range` is equal; `uniform` is as balanced and moves no more partitions."""

import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from random import Random
from uuid import UUID

import pytest
from hypothesis import given
from tests.examples import examples
from tests.interop.kafka_jars import java_command
from tests.unit.core.groups.assignors.assignor_groups import (
    Topics,
    after,
    cases,
    loads,
    member,
    moves,
    topics_of,
)

from ottla.core.groups.assignors import ASSIGNORS, GroupAssignment, GroupSpec
from ottla.core.groups.state import TopicInfo

pytestmark = [pytest.mark.java]

SOURCE = Path(__file__).parent / "java" / "AssignorOracle.java"
Case = tuple[GroupSpec, dict[UUID, TopicInfo]]


class Oracle:
    """A Java process that runs Kafka's assignor for one group after the other."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def assign(self, name: str, group: GroupSpec, topics: Topics) -> GroupAssignment:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        kind = "HOMOGENEOUS" if group.is_homogeneous else "HETEROGENEOUS"
        lines = [f"assign {name} {kind}"]
        lines += [f"topic {topic.topic_id.int} {topic.num_partitions}" for topic in topics.values()]
        for name, spec in group.members.items():
            subscribed = ",".join(str(topic.int) for topic in sorted(spec.topic_ids)) or "-"
            has = written(spec.assigned)
            lines.append(f"member {name} {spec.instance_id or '-'} {subscribed} {has}")
        self._process.stdin.write("\n".join([*lines, "end", ""]))
        self._process.stdin.flush()
        # Kafka leaves out members if no member has a subscription.
        found: GroupAssignment = {member_id: {} for member_id in group.members}
        while (line := self._process.stdout.readline().strip()) != "end":
            assert line, "the Java process has ended: it says why above"
            member_id, has = line.split(" ")
            found[member_id] = read(has)
        return found


def written(assigned: Mapping[UUID, frozenset[int]]) -> str:
    return ";".join(f"{topic.int}:{','.join(map(str, has))}" for topic, has in assigned.items()) or "-"


def read(text: str) -> dict[UUID, frozenset[int]]:
    parts = [] if text == "-" else [part.split(":") for part in text.split(";")]
    return {UUID(int=int(topic)): frozenset(map(int, has.split(","))) for topic, has in parts}


def as_kafka_wants_it(case: Case) -> Case:
    """Kafka's assignors are never given a topic or a partition that does not exist."""
    group, topics = case
    members = {}
    for name, spec in group.members.items():
        assigned = {
            topic: frozenset(p for p in has if p < topics[topic].num_partitions)
            for topic, has in spec.assigned.items()
        }
        members[name] = spec._replace(
            topic_ids=frozenset(spec.topic_ids & topics.keys()),
            assigned={topic: has for topic, has in assigned.items() if has},
        )
    is_homogeneous = len({spec.topic_ids for spec in members.values()}) == 1
    return GroupSpec(members, is_homogeneous), topics


@pytest.fixture(scope="module")
def oracle(kafka_libs: Path) -> Iterator[Oracle]:
    with subprocess.Popen(
        java_command(kafka_libs, str(SOURCE)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Oracle(process)
        finally:
            process.kill()


@given(case=cases().map(as_kafka_wants_it))
@examples(200)
def test_range_assigns_as_kafka_does(oracle: Oracle, case: Case) -> None:
    assert ASSIGNORS["range"].assign(*case) == oracle.assign("range", *case)


@given(case=cases(is_homogeneous=True).map(as_kafka_wants_it))
@examples(200)
def test_uniform_is_as_balanced_as_kafkas_and_moves_no_more(oracle: Oracle, case: Case) -> None:
    ours, kafkas = ASSIGNORS["uniform"].assign(*case), oracle.assign("uniform", *case)
    assert sorted(loads(ours)) == sorted(loads(kafkas))
    assert moves(*case, ours) <= moves(*case, kafkas)


@given(case=cases(is_homogeneous=False).map(as_kafka_wants_it))
@examples(200)
def test_uniform_is_at_least_as_balanced_as_kafkas_if_subscriptions_differ(
    oracle: Oracle, case: Case
) -> None:
    ours, kafkas = ASSIGNORS["uniform"].assign(*case), oracle.assign("uniform", *case)
    assert sum(load**2 for load in loads(ours)) <= sum(load**2 for load in loads(kafkas))


def test_uniform_moves_fewer_partitions_than_kafkas_if_subscriptions_differ(
    oracle: Oracle,
) -> None:
    """Neither side computes the minimum here, so the test compares the total number of moved partitions."""
    random = Random(848)
    ours = kafkas = 0
    for _ in range(200):
        topics = topics_of(*(random.randint(1, 9) for _ in range(random.randint(2, 6))))
        before = any_group(random, topics, range(random.randint(2, 8)))
        stays = after(before, oracle.assign("uniform", before, topics)).members
        left = dict(list(stays.items())[random.randint(0, 1) :])
        joined = any_group(random, topics, range(8, 8 + random.randint(0, 2))).members
        now = GroupSpec(left | dict(joined), is_homogeneous=False)
        by_us, by_kafka = ASSIGNORS["uniform"].assign(now, topics), oracle.assign("uniform", now, topics)
        if sorted(loads(by_us)) == sorted(loads(by_kafka)):
            ours += moves(now, topics, by_us)
            kafkas += moves(now, topics, by_kafka)
    assert 0 < ours <= kafkas


def any_group(random: Random, topics: Topics, numbers: Iterable[int]) -> GroupSpec:
    subscribed = [[topic.int for topic in topics if random.random() < 0.6] for _ in numbers]
    members = [member(f"m{number}", ids) for number, ids in zip(numbers, subscribed, strict=True)]
    return GroupSpec({spec.member_id: spec for spec in members}, is_homogeneous=False)
