"""Group requests that no correct client sends: they get Kafka's error code and change nothing."""

import contextlib
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.interop.brokers import RunningBroker
from tests.interop.group_clients import GROUP_BROKER, set_group_config
from tests.interop.group_wire import (
    CONSUMER_GROUP_DESCRIBE,
    DELETE_GROUPS,
    FIND_COORDINATOR,
    Request,
    Stage,
    commit,
    consumer_commit,
    consumer_heartbeat,
    consumer_join,
    delete_offset,
    describe_groups,
    fetch,
    heartbeat,
    join,
    leave,
    offset_of,
    sync,
)
from tests.interop.kio_client import KioClient, errors_in, subscription
from tests.interop.librdkafka import create_topic, wait_until

pytestmark = pytest.mark.contract

NOBODY = "no-such-member"
Case = tuple[Callable[[Stage], Request], str]


@pytest.fixture
def stage(group_broker: RunningBroker, topic_name: str) -> Iterator[Stage]:
    create_topic(group_broker.bootstrap, topic_name, partitions=2)
    with contextlib.closing(KioClient(group_broker.bootstrap)) as client:
        stage = Stage(client, topic_name)
        stage.set_up()
        yield stage


def strange(name: str = "range", topic: str = "t") -> list[dict[str, Any]]:
    return [{"name": name, "metadata": subscription(topic)}]


def new_id() -> str:
    return str(uuid.uuid4())


JOINS: dict[str, Case] = {
    "an empty group id": (lambda s: join(s, group_id=""), "invalid_group_id"),
    "a session that is too short": (lambda s: join(s, session_timeout=499), "invalid_session_timeout"),
    "a session that is too long": (lambda s: join(s, session_timeout=1_800_001), "invalid_session_timeout"),
    "a member that nobody knows": (lambda s: join(s, member_id=NOBODY), "unknown_member_id"),
    "a member of no group": (lambda s: join(s, group_id=s.nowhere, member_id=NOBODY), "unknown_member_id"),
    "no protocol": (lambda s: join(s, member_id="", protocols=[]), "inconsistent_group_protocol"),
    "an empty protocol type": (
        lambda s: join(s, member_id="", protocol_type=""),
        "inconsistent_group_protocol",
    ),
    "another protocol type": (
        lambda s: join(s, member_id="", protocol_type="connect"),
        "inconsistent_group_protocol",
    ),
    "no protocol in common": (
        lambda s: join(s, member_id="", protocols=strange("sticky")),
        "inconsistent_group_protocol",
    ),
    "an instance that is another member": (
        lambda s: join(s, member_id=NOBODY, group_instance_id="static"),
        "fenced_instance_id",
    ),
    "an instance that nobody knows, with a member id": (
        lambda s: join(s, member_id=NOBODY, group_instance_id="stranger"),
        "unknown_member_id",
    ),
    "a consumer group without an assignor in common": (
        lambda s: join(s, group_id=s.consumer, member_id="", protocol_type="connect"),
        "inconsistent_group_protocol",
    ),
}
SYNCS: dict[str, Case] = {
    "an empty group id": (lambda s: sync(s, group_id=""), "invalid_group_id"),
    "no such group": (lambda s: sync(s, group_id=s.nowhere), "unknown_member_id"),
    "no such member": (lambda s: sync(s, member_id=NOBODY), "unknown_member_id"),
    "another generation": (lambda s: sync(s, generation_id=2), "illegal_generation"),
    "a fenced instance": (
        lambda s: sync(s, member_id=NOBODY, group_instance_id="static"),
        "fenced_instance_id",
    ),
    "another protocol type": (lambda s: sync(s, protocol_type="connect"), "inconsistent_group_protocol"),
    "no protocol, which v5 wants (KIP-559)": (
        lambda s: sync(s, protocol_type=None, protocol_name=None),
        "inconsistent_group_protocol",
    ),
    "another protocol": (
        lambda s: sync(s, protocol_name="sticky"),
        "inconsistent_group_protocol",
    ),
    "a consumer group's member": (
        lambda s: sync(s, group_id=s.consumer, member_id=s.consumer_id),
        "unknown_member_id",
    ),
}
HEARTBEATS: dict[str, Case] = {
    "an empty group id": (lambda s: heartbeat(s, group_id=""), "invalid_group_id"),
    "no such group": (lambda s: heartbeat(s, group_id=s.nowhere), "unknown_member_id"),
    "no such member": (lambda s: heartbeat(s, member_id=NOBODY), "unknown_member_id"),
    "the generation before": (lambda s: heartbeat(s, generation_id=0), "illegal_generation"),
    "the generation after": (lambda s: heartbeat(s, generation_id=2), "illegal_generation"),
    "a fenced instance": (
        lambda s: heartbeat(s, member_id=NOBODY, group_instance_id="static"),
        "fenced_instance_id",
    ),
    "an instance that nobody knows": (
        lambda s: heartbeat(s, group_instance_id="stranger"),
        "unknown_member_id",
    ),
    "a consumer group's member": (
        lambda s: heartbeat(s, group_id=s.consumer, member_id=s.consumer_id),
        "unknown_member_id",
    ),
}
LEAVES: dict[str, Case] = {
    "an empty group id": (lambda s: leave(s, group_id="", member_id=s.member_id), "invalid_group_id"),
    "no such group": (lambda s: leave(s, group_id=s.nowhere, member_id=s.member_id), "unknown_member_id"),
    "no such member": (lambda s: leave(s, member_id=NOBODY), "unknown_member_id"),
    "no such instance": (
        lambda s: leave(s, member_id="", group_instance_id="stranger"),
        "unknown_member_id",
    ),
    "a fenced instance": (
        lambda s: leave(s, member_id=NOBODY, group_instance_id="static"),
        "fenced_instance_id",
    ),
    "nobody of a consumer group": (
        lambda s: leave(s, group_id=s.consumer, member_id=NOBODY),
        "unknown_member_id",
    ),
}
COMMITS: dict[str, Case] = {
    "an empty group id": (lambda s: commit(s, group_id=""), "group_id_not_found"),
    "a member of no group": (lambda s: commit(s, group_id=s.nowhere), "group_id_not_found"),
    "a member of no group, in an older version": (
        lambda s: commit(s, 8, group_id=s.nowhere),
        "illegal_generation",
    ),
    "no such member": (lambda s: commit(s, member_id=NOBODY), "unknown_member_id"),
    "no member": (
        lambda s: commit(s, member_id="", generation_id_or_member_epoch=-1),
        "unknown_member_id",
    ),
    "the generation before": (
        lambda s: commit(s, generation_id_or_member_epoch=0),
        "illegal_generation",
    ),
    "the generation after": (
        lambda s: commit(s, generation_id_or_member_epoch=2),
        "illegal_generation",
    ),
    "a fenced instance": (
        lambda s: commit(s, member_id=NOBODY, group_instance_id="static"),
        "fenced_instance_id",
    ),
    "a topic that does not exist": (
        lambda s: commit(s, topics=[offset_of("never-made", offset=9)]),
        "unknown_topic_or_partition",
    ),
    "a partition that does not exist": (
        lambda s: commit(s, topics=[offset_of(s.topic, partition=2, offset=9)]),
        "unknown_topic_or_partition",
    ),
    "a negative partition": (
        lambda s: commit(s, topics=[offset_of(s.topic, partition=-1, offset=9)]),
        "unknown_topic_or_partition",
    ),
    "metadata over the limit": (
        lambda s: commit(s, topics=[offset_of(s.topic, offset=9, metadata="m" * 4097)]),
        "offset_metadata_too_large",
    ),
    "a topic id that does not exist": (
        lambda s: commit(
            s, 10, topics=[{"topic_id": uuid.uuid4(), "partitions": offset_of("any")["partitions"]}]
        ),
        "unknown_topic_id",
    ),
    "a consumer group's epoch before": (
        lambda s: consumer_commit(s, generation_id_or_member_epoch=s.epoch - 1),
        "stale_member_epoch",
    ),
    "a consumer group's epoch after": (
        lambda s: consumer_commit(s, generation_id_or_member_epoch=s.epoch + 1),
        "stale_member_epoch",
    ),
    "nobody of a consumer group": (
        lambda s: consumer_commit(s, member_id=NOBODY),
        "unknown_member_id",
    ),
    "no member of a consumer group": (
        lambda s: consumer_commit(s, member_id="", generation_id_or_member_epoch=-1),
        "unknown_member_id",
    ),
    "a consumer group in a version that knows none": (
        lambda s: consumer_commit(s, 8),
        "unsupported_version",
    ),
}
OFFSETS: dict[str, Case] = {
    "fetched by nobody of a consumer group": (
        lambda s: fetch(s.consumer, s.topic, member_id=NOBODY, member_epoch=1),
        "unknown_member_id",
    ),
    "fetched with another member epoch": (
        lambda s: fetch(s.consumer, s.topic, member_id=s.consumer_id, member_epoch=s.epoch + 1),
        "stale_member_epoch",
    ),
    "deleted of an empty group id": (lambda s: delete_offset("", s.topic), "invalid_group_id"),
    "deleted of no such group": (lambda s: delete_offset(s.nowhere, s.topic), "group_id_not_found"),
    "deleted of a topic that does not exist": (
        lambda s: delete_offset(s.classic, "never-made"),
        "unknown_topic_or_partition",
    ),
    "deleted of a partition that does not exist": (
        lambda s: delete_offset(s.classic, s.topic, partition=7),
        "unknown_topic_or_partition",
    ),
    "deleted while a member is subscribed": (
        lambda s: delete_offset(s.classic, s.topic),
        "group_subscribed_to_topic",
    ),
    "deleted while a member of a consumer group is subscribed": (
        lambda s: delete_offset(s.consumer, s.topic),
        "group_subscribed_to_topic",
    ),
}
CONSUMER_HEARTBEATS: dict[str, Case] = {
    "an empty group id": (lambda s: consumer_heartbeat(s, group_id=""), "invalid_request"),
    "a group id of spaces": (lambda s: consumer_heartbeat(s, group_id="  "), "invalid_request"),
    "an empty member id": (lambda s: consumer_heartbeat(s, member_id=""), "invalid_request"),
    "an epoch below all": (lambda s: consumer_heartbeat(s, member_epoch=-3), "invalid_request"),
    "an empty instance id": (lambda s: consumer_join(s, new_id(), instance_id=""), "invalid_request"),
    "an empty rack": (lambda s: consumer_join(s, new_id(), rack_id=""), "invalid_request"),
    "a static leave without an instance": (
        lambda s: consumer_heartbeat(s, member_epoch=-2),
        "invalid_request",
    ),
    "a join without a subscription": (
        lambda s: consumer_join(s, new_id(), subscribed_topic_names=None),
        "invalid_request",
    ),
    "a join without a rebalance timeout": (
        lambda s: consumer_join(s, new_id(), rebalance_timeout=-1),
        "invalid_request",
    ),
    "a join that owns partitions": (
        lambda s: consumer_join(
            s, new_id(), topic_partitions=[{"topic_id": uuid.uuid4(), "partitions": (0,)}]
        ),
        "invalid_request",
    ),
    "a join that does not say what it owns": (
        lambda s: consumer_join(s, new_id(), topic_partitions=None),
        "invalid_request",
    ),
    "an assignor that is not there": (
        lambda s: consumer_join(s, new_id(), server_assignor="random"),
        "unsupported_assignor",
    ),
    "a regular expression that cannot be read": (
        lambda s: consumer_join(s, new_id(), subscribed_topic_names=(), subscribed_topic_regex="(unclosed"),
        "invalid_regular_expression",
    ),
    "a regular expression with a back reference": (
        lambda s: consumer_join(s, new_id(), subscribed_topic_names=(), subscribed_topic_regex=r"(a)\1"),
        "invalid_regular_expression",
    ),
    "a regular expression that looks ahead": (
        lambda s: consumer_join(s, new_id(), subscribed_topic_names=(), subscribed_topic_regex="a(?=b)"),
        "invalid_regular_expression",
    ),
    "a change to a regular expression that cannot be read": (
        lambda s: consumer_heartbeat(s, subscribed_topic_regex="[z-a]"),
        "invalid_regular_expression",
    ),
    "an instance that another member holds": (
        lambda s: consumer_join(s, new_id(), instance_id="static"),
        "unreleased_instance_id",
    ),
    "an instance as another member": (
        lambda s: consumer_heartbeat(s, member_id=NOBODY, instance_id="static"),
        "fenced_instance_id",
    ),
    "an instance that nobody knows": (
        lambda s: consumer_heartbeat(s, instance_id="stranger"),
        "unknown_member_id",
    ),
    "no such member": (lambda s: consumer_heartbeat(s, member_id=NOBODY), "unknown_member_id"),
    "no such group": (lambda s: consumer_heartbeat(s, group_id=s.nowhere), "group_id_not_found"),
    "an epoch from the future": (
        lambda s: consumer_heartbeat(s, member_epoch=s.epoch + 1),
        "fenced_member_epoch",
    ),
    "the epoch before with partitions that it does not own": (
        lambda s: consumer_heartbeat(
            s, member_epoch=s.epoch + 5, topic_partitions=[{"topic_id": uuid.uuid4(), "partitions": (9,)}]
        ),
        "fenced_member_epoch",
    ),
    "a leave of nobody": (
        lambda s: consumer_heartbeat(s, member_id=NOBODY, member_epoch=-1),
        "unknown_member_id",
    ),
}
ADMINISTRATION: dict[str, Case] = {
    "delete a group that is not there": (
        lambda s: (DELETE_GROUPS, 2, {"groups_names": (s.nowhere,)}),
        "group_id_not_found",
    ),
    "delete an empty group id": (lambda s: (DELETE_GROUPS, 2, {"groups_names": ("",)}), "group_id_not_found"),
    "delete a group with members": (
        lambda s: (DELETE_GROUPS, 2, {"groups_names": (s.classic,)}),
        "non_empty_group",
    ),
    "delete a consumer group with members": (
        lambda s: (DELETE_GROUPS, 2, {"groups_names": (s.consumer,)}),
        "non_empty_group",
    ),
    "describe a group that is not there": (
        lambda s: describe_groups(s.nowhere),
        "group_id_not_found",
    ),
    "describe a consumer group as a classic one": (
        lambda s: describe_groups(s.consumer),
        "group_id_not_found",
    ),
    "describe a classic group as a consumer one": (
        lambda s: (
            CONSUMER_GROUP_DESCRIBE,
            1,
            {"group_ids": (s.classic,), "include_authorized_operations": False},
        ),
        "group_id_not_found",
    ),
    "describe an empty group id": (
        lambda s: (CONSUMER_GROUP_DESCRIBE, 1, {"group_ids": ("",), "include_authorized_operations": False}),
        "invalid_group_id",
    ),
    "find a coordinator of an unknown kind": (
        lambda s: (FIND_COORDINATOR, 6, {"key_type": 9, "coordinator_keys": ("a",)}),
        "invalid_request",
    ),
}
CASES: dict[str, Case] = {
    f"{what}: {name}": case
    for what, cases in (
        ("join", JOINS),
        ("sync", SYNCS),
        ("heartbeat", HEARTBEATS),
        ("leave", LEAVES),
        ("commit", COMMITS),
        ("offsets", OFFSETS),
        ("consumer heartbeat", CONSUMER_HEARTBEATS),
        ("admin", ADMINISTRATION),
    )
    for name, case in cases.items()
}


@pytest.mark.parametrize("name", CASES)
def test_bad_input_gets_its_error_and_changes_nothing(stage: Stage, name: str) -> None:
    request, error = CASES[name]
    before = stage.look()
    assert stage.errors(request(stage)) == [error]
    assert stage.look() == before


def test_a_rejected_join_adds_no_member(stage: Stage) -> None:
    assert stage.errors(join(stage, group_id=stage.nowhere, member_id="", protocols=[])) == [
        "inconsistent_group_protocol"
    ]
    described = stage.ask(describe_groups(stage.nowhere))
    assert described.groups[0].members == ()


def test_a_new_member_must_join_again_with_its_assigned_id(stage: Stage) -> None:
    """KIP-394: a client that never gets the response leaves no member behind."""
    first = stage.ask(join(stage, group_id=stage.nowhere, member_id=""))
    assert (errors_in(first), first.member_id.startswith("wire-")) == (["member_id_required"], True)
    again = stage.ask(join(stage, group_id=stage.nowhere, member_id=first.member_id))
    assert (errors_in(again), again.generation_id, again.leader) == ([], 1, first.member_id)


def test_before_v4_a_new_member_joins_at_once(stage: Stage) -> None:
    joined = stage.ask(join(stage, 3, group_id=stage.nowhere, member_id=""))
    assert (errors_in(joined), joined.generation_id, joined.leader) == ([], 1, joined.member_id)


def test_a_commit_before_the_assignment_gets_rebalance_in_progress(stage: Stage) -> None:
    joined = stage.ask(join(stage, group_id=stage.nowhere, member_id="", group_instance_id="one"))
    early = commit(stage, group_id=stage.nowhere, member_id=joined.member_id)
    assert stage.errors(early) == ["rebalance_in_progress"]
    member = {"group_id": stage.nowhere, "member_id": joined.member_id}
    mine = [{"member_id": joined.member_id, "assignment": b"mine"}]
    assert stage.errors(sync(stage, assignments=mine, **member)) == []
    assert stage.errors(early) == []


def test_a_commit_with_the_previous_member_epoch_is_stale_for_a_partition_that_has_moved(
    stage: Stage,
) -> None:
    """Another member has joined, the group has a new epoch, and one partition has moved to that member."""
    assert stage.errors(consumer_join(stage, new_id())) == []
    heard: Any = None

    def is_asked_to_share() -> bool:
        nonlocal heard
        heard = stage.ask(consumer_heartbeat(stage))
        return heard.assignment is not None

    wait_until(is_asked_to_share, "the first member is told to give a partition away")
    (mine,) = heard.assignment.topic_partitions
    (kept,) = mine.partitions
    lost = 1 - kept
    early = consumer_commit(stage, topics=[offset_of(stage.topic, lost, 6)])
    assert stage.errors(early) == []
    owned = [{"topic_id": mine.topic_id, "partitions": mine.partitions}]
    heard = stage.ask(consumer_heartbeat(stage, topic_partitions=owned))
    assert (errors_in(heard), heard.member_epoch > stage.epoch) == ([], True)
    late = consumer_commit(stage, topics=[offset_of(stage.topic, lost, 100)])
    assert stage.errors(late) == ["stale_member_epoch"]
    assert committed_offset(stage, stage.consumer, lost) == 6
    # KIP-1251: partitions that it kept may still be committed with the previous epoch.
    assert stage.errors(consumer_commit(stage, topics=[offset_of(stage.topic, kept, 8)])) == []
    assert committed_offset(stage, stage.consumer, kept) == 8


def test_metadata_may_be_as_long_as_the_limit(stage: Stage) -> None:
    assert stage.errors(commit(stage, topics=[offset_of(stage.topic, metadata="m" * 4096)])) == []


def test_one_invalid_partition_does_not_fail_the_commit_of_the_others(stage: Stage) -> None:
    topics = [offset_of("never-made"), offset_of(stage.topic, offset=8), offset_of(stage.topic, partition=9)]
    assert stage.errors(commit(stage, topics=topics)) == ["unknown_topic_or_partition"] * 2
    assert committed_offset(stage, stage.classic) == 8


def test_an_unknown_group_has_no_offsets_and_is_dead_in_older_versions(stage: Stage) -> None:
    assert committed_offset(stage, stage.nowhere) == -1
    described = stage.ask(describe_groups(stage.nowhere, version=5))
    assert [(group.error_code.name, group.group_state) for group in described.groups] == [("none", "Dead")]


def test_a_deleted_group_has_neither_members_nor_offsets(stage: Stage) -> None:
    assert stage.errors(leave(stage, member_id=stage.member_id)) == []
    assert stage.errors((DELETE_GROUPS, 2, {"groups_names": (stage.classic,)})) == []
    assert stage.errors(heartbeat(stage)) == ["unknown_member_id"]
    assert stage.errors(sync(stage)) == ["unknown_member_id"]
    assert stage.errors(join(stage)) == ["unknown_member_id"]
    assert stage.errors(commit(stage)) == ["group_id_not_found"]
    assert stage.errors((DELETE_GROUPS, 2, {"groups_names": (stage.classic,)})) == ["group_id_not_found"]
    assert committed_offset(stage, stage.classic) == -1


def test_a_group_can_have_its_own_session_timeout_and_heartbeat_interval(
    group_broker: RunningBroker, stage: Stage
) -> None:
    """KIP-848: configs of the resource type GROUP."""
    set_group_config(group_broker.bootstrap, stage.consumer, "consumer.heartbeat.interval.ms", "150")

    def interval_ms() -> float:
        heard = stage.ask(consumer_heartbeat(stage))
        return float(heard.heartbeat_interval.total_seconds() * 1000)

    wait_until(lambda: interval_ms() == 150, "the group's members are told its own interval")


def test_a_group_accepts_no_more_members_than_group_max_size(
    own_broker: Callable[..., RunningBroker], topic_name: str
) -> None:
    limits = {"group.max.size": "1", "group.consumer.max.size": "1"}
    broker = own_broker(set=GROUP_BROKER | limits)
    create_topic(broker.bootstrap, topic_name, partitions=2)
    with contextlib.closing(KioClient(broker.bootstrap)) as client:
        stage = Stage(client, topic_name)
        stage.set_up()
        before = stage.look()
        assert stage.errors(join(stage, member_id="", group_instance_id="second")) == [
            "group_max_size_reached"
        ]
        assert stage.errors(consumer_join(stage, new_id())) == ["group_max_size_reached"]
        assert stage.look() == before


def committed_offset(stage: Stage, group_id: str, partition: int = 0) -> int:
    (group,) = stage.ask(fetch(group_id, stage.topic, partition)).groups
    offset: int = group.topics[0].partitions[0].committed_offset
    return offset
