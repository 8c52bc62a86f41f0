"""Subscriptions by regular expression: RE2, resolved by the coordinator (KIP-848)."""

import pytest
from tests.unit.core.groups.consumer.consumer_groups import Groups, Member, Topics, rejected, settle

from ottla.core.groups.consumer.regex import RegexResolver, check_regex
from ottla.model.errors import ErrorCode
from ottla.protocol.group_records.records import ConsumerGroupRegularExpressionKey


@pytest.fixture
def groups() -> Groups:
    topics = Topics()
    for name, partitions in {"logs.web": 2, "logs.app": 1, "orders": 3, "__consumer_offsets": 50}.items():
        topics.create(name, partitions)
    return Groups(topics)


def regex_records(groups: Groups) -> list[tuple[str, tuple[str, ...] | None]]:
    return [
        (key.regular_expression, None if value is None else value.topics)
        for key, value in groups.records
        if isinstance(key, ConsumerGroupRegularExpressionKey)
    ]


def test_a_member_gets_the_topics_whose_whole_name_matches(groups: Groups) -> None:
    member = Member(groups, "a", regex=r"logs\..*").join()
    assert member.partitions("logs.web") == {0, 1}
    assert member.partitions("logs.app") == {0}
    assert member.partitions("orders") == set()
    assert Member(groups, "b", regex="logs").join().epoch > 0
    assert groups.group().subscriptions.resolved["logs"].topics == frozenset()


def test_a_regex_does_not_match_internal_topics(groups: Groups) -> None:
    Member(groups, "a", regex=".*").join()
    assert regex_records(groups) == [(".*", ("logs.app", "logs.web", "orders"))]


def test_a_regex_and_names_are_combined(groups: Groups) -> None:
    groups.heartbeat(
        "a",
        0,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=("orders",),
        subscribed_topic_regex="logs.web",
        topic_partitions=(),
    )
    assert set(groups.group().subscriptions.names()) == {"orders", "logs.web"}
    assert groups.group().is_subscribed_to("logs.web")
    assert not groups.group().is_subscribed_to("logs.app")


@pytest.mark.parametrize("regex", ["(", "a(?=b)", r"(a)\1", "[z-a]", "*"])
def test_an_invalid_regex_is_rejected_with_the_reason_and_changes_nothing(groups: Groups, regex: str) -> None:
    with rejected(ErrorCode.invalid_regular_expression, f"`{regex}` is not a valid regular expression: "):
        Member(groups, "a", regex=regex).join()
    assert groups.records == []
    assert groups.machine.durable_state() == {}


def test_an_invalid_regex_does_not_replace_a_static_member(groups: Groups) -> None:
    Member(groups, "a1", regex="orders", instance_id="a").join().leave(-2)
    written = len(groups.records)
    with rejected(ErrorCode.invalid_regular_expression):
        Member(groups, "a2", regex="(", instance_id="a").join()
    assert len(groups.records) == written


def test_a_regex_that_is_slow_in_a_backtracking_engine_is_matched_at_once() -> None:
    topics = Topics()
    topics.create("a" * 249, 1)
    check_regex("(a*)*b")
    assert RegexResolver().resolve("(a*)*b", topics) == frozenset()


def test_a_new_topic_is_found_without_a_heartbeat(groups: Groups) -> None:
    member = Member(groups, "a", regex="logs.*").join()
    groups.advance(30_000)
    groups.topics.create("logs.db", 4)
    groups.changed_topics()
    member.heartbeat()
    assert member.partitions("logs.db") == {0, 1, 2, 3}


def test_regexes_are_resolved_at_most_every_ten_seconds_while_topics_change(
    groups: Groups,
) -> None:
    member = Member(groups, "a", regex="logs.*").join()
    groups.topics.create("logs.db", 4)
    groups.changed_topics()
    groups.advance(5000)
    member.heartbeat()
    assert member.partitions("logs.db") == set()
    groups.advance(6000)
    member.heartbeat()
    assert member.partitions("logs.db") == {0, 1, 2, 3}


def test_a_change_that_does_not_concern_the_matching_topics_writes_nothing(groups: Groups) -> None:
    member = Member(groups, "a", regex="logs.*").join()
    written = len(groups.records)
    groups.topics.grow("orders", 9)
    groups.advance(20_000)
    member.heartbeat()
    assert len(groups.records) == written


def test_a_deleted_topic_is_removed_from_the_assignment_at_once(groups: Groups) -> None:
    member = Member(groups, "a", regex="logs.*").join()
    groups.topics.delete("logs.web")
    groups.advance(1000)
    settle(groups, member)
    assert {topic_id for topic_id, _ in member.owned} == {groups.topics.id("logs.app")}


def test_a_new_regex_is_resolved_at_once_even_in_a_group_with_others(groups: Groups) -> None:
    Member(groups, "a", regex="logs.*").join()
    groups.advance(1000)
    second = Member(groups, "b", regex="orders").join()
    assert second.partitions("orders") == {0, 1, 2}


def test_an_unused_regex_is_deleted(groups: Groups) -> None:
    member = Member(groups, "a", regex="logs.*").join()
    member.subscribe(regex="orders")
    assert [regex for regex, topics in regex_records(groups) if topics is None] == ["logs.*"]
    settle(groups, member)
    assert member.partitions("orders") == {0, 1, 2}
    member.subscribe("logs.app")
    settle(groups, member)
    assert groups.group().subscriptions.resolved == {}
    assert member.partitions("logs.app") == {0}
    member.subscribe(regex="orders")
    member.leave()
    assert groups.group().subscriptions.resolved == {}


def test_regexes_are_resolved_again_after_the_refresh_interval_without_a_change() -> None:
    groups = Groups(Topics(orders=1), consumer_regex_refresh_interval_ms=60_000)
    member = Member(groups, "a", regex="order.*").join()
    groups.advance(30_000)
    member.heartbeat()
    before = groups.group().regexes_timestamp_ms
    groups.advance(30_000)
    member.heartbeat()
    assert groups.group().regexes_timestamp_ms > before


def test_resolved_regexes_survive_a_reload(groups: Groups) -> None:
    member = Member(groups, "a", regex="logs.*").join()
    groups.restart()
    assert groups.group().subscriptions.resolved["logs.*"].topics == {"logs.web", "logs.app"}
    groups.advance(1000)
    epoch = member.epoch
    assert member.heartbeat().epoch == epoch
