"""Plans in Kafka's JSON format, and the reasons to refuse one."""

import json

import pytest

from ottla.admin.cluster import ClusterError
from ottla.admin.reassignment_generator import Wish, broker_loads, copied_bytes, generate_plan
from ottla.admin.reassignment_plan import (
    ClusterState,
    OngoingMove,
    PartitionState,
    Plan,
    PlanError,
    added_replicas,
    changes_of,
    format_plan,
    parse_plan,
    plan_errors,
)
from ottla.admin.reassignment_throttles import FOLLOWERS, LEADERS, throttled_replicas
from ottla.model.ids import TopicPartition

FIRST, SECOND = TopicPartition("journal", 0), TopicPartition("journal", 1)
# Broker 4 is down; partition 1 moves from 3 to 2.
STATE = ClusterState(
    {1: "a", 2: "b", 3: "a"},
    frozenset({4}),
    {
        FIRST: PartitionState((1, 2), (1, 2), 1, 1000),
        SECOND: PartitionState((2, 1, 3), (1, 3), 1, 500),
    },
    {SECOND: OngoingMove((2, 1, 3), (2,), (3,))},
)
QUIET = STATE._replace(
    inactive=frozenset(),
    partitions={FIRST: STATE.partitions[FIRST], SECOND: PartitionState((1, 3), (1, 3), 1, 500)},
    ongoing={},
)


def errors(plan: Plan, *, minimum: int = 1, force: bool = False) -> list[str]:
    return plan_errors(plan, STATE, {"journal": minimum}, force=force)


def test_a_plan_is_read_as_it_was_written() -> None:
    plan = {FIRST: (1, 2), SECOND: (3,)}
    assert parse_plan(format_plan(plan)) == plan


def test_a_plan_of_kafkas_tool_is_read_with_or_without_log_dirs() -> None:
    text = """{"version":1,"partitions":[
        {"topic":"journal","partition":0,"replicas":[1,2],"log_dirs":["any","any"]},
        {"topic":"journal","partition":1,"replicas":[3]}]}"""
    assert parse_plan(text) == {FIRST: (1, 2), SECOND: (3,)}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "it is not JSON"),
        ("[]", 'expected {"version": 1'),
        ('{"version": 2, "partitions": []}', 'expected {"version": 1'),
        ('{"version": 1, "partitions": []}', "it has no partitions"),
        ('{"partitions": [3]}', "expected topic, partition and replicas"),
        ('{"partitions": [{"topic": "t", "partition": -1, "replicas": [1]}]}', "expected topic, partition"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": ["1"]}]}', "not ids of brokers"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [true]}]}', "not ids of brokers"),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": ["/d"]}]}',
            "log_dirs names a directory",
        ),
    ],
)
def test_a_wrong_plan_is_an_error_that_says_what_is_wrong(text: str, reason: str) -> None:
    with pytest.raises(PlanError, match=reason.replace("{", r"\{")):
        parse_plan(text)


def test_a_partition_must_not_be_in_a_plan_twice() -> None:
    entry = {"topic": "journal", "partition": 0, "replicas": [1]}
    with pytest.raises(PlanError, match="journal-0 is in it twice"):
        parse_plan(json.dumps({"version": 1, "partitions": [entry, entry]}))


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        ({TopicPartition("nobody", 0): (1,)}, "nobody-0: there is no topic nobody"),
        ({TopicPartition("journal", 7): (1,)}, "journal-7: topic journal has no partition 7"),
        ({FIRST: (1, 9)}, "journal-0: there is no broker 9. The brokers are 1, 2, 3"),
        ({FIRST: (1, 1)}, "journal-0: a broker is twice in its replicas 1, 1"),
        ({FIRST: ()}, "journal-0: it has no replicas"),
        ({SECOND: (3, 1)}, "journal-1: it is being moved to 2, 1. Wait for that, or cancel it"),
    ],
)
def test_a_plan_that_does_not_fit_is_refused_with_and_without_force(plan: Plan, reason: str) -> None:
    for force in (False, True):
        (error,) = errors(plan, force=force)
        assert error.startswith(reason)


def test_a_plan_that_goes_on_with_a_move_is_not_refused() -> None:
    assert errors({SECOND: (2, 1)}) == []
    assert changes_of({FIRST: (1, 2), SECOND: (2, 1)}, STATE) == {SECOND: (2, 1)}


@pytest.mark.parametrize("replicas", [(1,), (1, 4)])
def test_fewer_active_replicas_than_min_insync_replicas_need_force(replicas: tuple[int, ...]) -> None:
    (error,) = errors({FIRST: replicas}, minimum=2)
    assert "fewer than min.insync.replicas=2" in error
    assert errors({FIRST: replicas}, minimum=2, force=True) == []
    assert errors({FIRST: (1, 3)}, minimum=2) == []


def test_only_new_replicas_are_copied_also_those_of_a_move_that_goes_on() -> None:
    assert added_replicas({FIRST: (3, 1), SECOND: (2, 1)}, STATE) == {FIRST: (3,), SECOND: (2,)}
    assert copied_bytes({FIRST: (3, 1), SECOND: (2, 1)}, STATE) == 1500
    assert added_replicas({FIRST: (2, 1)}, STATE) == {}


def test_all_old_replicas_may_send_and_the_new_ones_receive() -> None:
    assert throttled_replicas({FIRST: (3, 1)}, STATE) == {
        "journal": {LEADERS: ["0:1", "0:2"], FOLLOWERS: ["0:3"]}
    }


def test_loads_are_shown_before_and_after() -> None:
    before = {load.broker: load for load in broker_loads(QUIET, {})}
    after = {load.broker: load for load in broker_loads(QUIET, {FIRST: (3, 2)})}
    assert (before[1].replicas, before[1].leaders, before[1].size_bytes) == (2, 2, 1500)
    assert (after[1].replicas, after[1].leaders, after[1].size_bytes) == (1, 1, 500)
    assert (after[3].replicas, after[3].leaders, after[3].size_bytes) == (2, 1, 1500)


def test_a_drain_needs_no_active_broker() -> None:
    dead = QUIET._replace(racks={1: None, 2: None}, inactive=frozenset({3}))
    # Broker 2 becomes its preferred leader, as broker 1 is that of the other partition.
    assert generate_plan(dead, Wish(drain=[3])) == {SECOND: (2, 1)}
    with pytest.raises(ClusterError, match=r"broker 3 has replicas, but is not active. .* --drain 3"):
        generate_plan(dead, Wish())


@pytest.mark.parametrize(
    ("wish", "reason"),
    [
        (Wish(topics=["nobody"]), "There is no topic nobody"),
        (Wish(brokers=[1, 9]), "--brokers: broker 9 is not active. The active brokers are 1, 2, 3"),
        (Wish(add=[9]), "--add: broker 9 is not active"),
        (Wish(drain=[9]), "--drain: there is no broker 9"),
        (Wish(drain=[3], add=[3]), "Broker 3 cannot be drained and get replicas"),
        (Wish(replication_factor=4), "needs 4 brokers, but only 3 may have its replicas"),
    ],
)
def test_an_impossible_wish_is_an_error_that_says_why(wish: Wish, reason: str) -> None:
    with pytest.raises(ClusterError, match=reason):
        generate_plan(QUIET, wish)


def test_no_plan_is_made_for_partitions_that_move() -> None:
    with pytest.raises(ClusterError, match="journal-1 is being moved"):
        generate_plan(STATE, Wish(brokers=[1, 2, 3]))


def test_workers_of_one_host_do_not_get_two_replicas_of_a_partition() -> None:
    hosts = {1: "a", 1001: "a", 2: "b", 1002: "b"}
    partitions = {
        TopicPartition("t", index): PartitionState((1, 1001), (1, 1001), 1, 10) for index in range(4)
    }
    state = ClusterState(dict.fromkeys(hosts, None), frozenset(), partitions, {}, hosts)
    plan = generate_plan(state, Wish())
    assert all({hosts[replica] for replica in plan[partition]} == {"a", "b"} for partition in partitions)


@pytest.mark.parametrize(
    ("racks", "hosts", "expected"),
    [
        ((None, None, None), ("a", "a", "b"), ("a", "a", "b")),
        (("r", "r", "s"), ("a", "a", "b"), ("r", "r", "s")),
        ((None, None, None), ("a", "a", "a"), (None, None, None)),
        ((None, None, None), ("a", "b", "c"), (None, None, None)),
    ],
)
def test_hosts_count_only_if_there_are_no_racks_and_some_have_several_brokers(
    racks: tuple[str | None, ...], hosts: tuple[str, ...], expected: tuple[str | None, ...]
) -> None:
    state = ClusterState(dict(enumerate(racks)), frozenset(), {}, {}, dict(enumerate(hosts)))
    assert tuple(state.failure_domains.values()) == expected
