"""The steps of one member towards its target, one by one (KIP-848)."""

import uuid
from collections.abc import Mapping
from typing import Any

from ottla.core.groups.commands import TopicIdPartitions
from ottla.core.groups.consumer.member import ConsumerGroupMember, MemberState
from ottla.core.groups.consumer.reconciliation import Reconciliation

FOO, BAR = uuid.UUID(int=1), uuid.UUID(int=2)
STABLE, UNREVOKED, UNRELEASED, UNKNOWN = MemberState


def member(epoch: int, state: MemberState, assigned: Any, pending: Any = None) -> ConsumerGroupMember:
    return ConsumerGroupMember(
        member_id="m",
        member_epoch=epoch,
        previous_member_epoch=epoch,
        state=state,
        assigned=assigned,
        pending_revocation=pending or {},
    )


def step(
    member: ConsumerGroupMember,
    epoch: int,
    target: Mapping[uuid.UUID, set[int]],
    *,
    owned: Mapping[uuid.UUID, tuple[int, ...]] | None = None,
    others: Mapping[uuid.UUID, set[int]] | None = None,
    subscribed: frozenset[uuid.UUID] = frozenset((FOO, BAR)),
    changed: bool = False,
) -> ConsumerGroupMember:
    """`others` has the partitions of other members. The member's own partitions count as owned too."""
    mine = {
        (topic_id, partition)
        for partitions in (member.assigned, member.pending_revocation)
        for topic_id, of_topic in partitions.items()
        for partition in of_topic
    }
    return Reconciliation(
        assignment_epoch=epoch,
        target={topic_id: frozenset(partitions) for topic_id, partitions in target.items()},
        subscribed=subscribed,
        subscription_changed=changed,
        is_owned=lambda topic_id, partition: (
            (topic_id, partition) in mine or partition in (others or {}).get(topic_id, ())
        ),
        owned=None if owned is None else tuple(TopicIdPartitions(*topic) for topic in owned.items()),
    ).step(member)


def test_a_stable_member_at_the_epoch_of_the_target_stays_as_it_is() -> None:
    before = member(5, STABLE, {FOO: {1: 3}})
    assert step(before, 5, {FOO: {1}}) is before


def test_a_new_target_without_changes_for_the_member_only_changes_its_epoch() -> None:
    after = step(member(5, STABLE, {FOO: {1: 3}}), 6, {FOO: {1}})
    assert (after.member_epoch, after.previous_member_epoch, after.state) == (6, 5, STABLE)
    assert after.assigned == {FOO: {1: 3}}


def test_a_new_partition_has_the_epoch_of_its_assignment() -> None:
    after = step(member(5, STABLE, {FOO: {1: 3}}), 6, {FOO: {1, 2}, BAR: {4}})
    assert (after.member_epoch, after.state) == (6, STABLE)
    assert after.assigned == {FOO: {1: 3, 2: 6}, BAR: {4: 6}}


def test_a_member_stays_in_its_epoch_while_it_must_revoke_partitions() -> None:
    after = step(member(5, STABLE, {FOO: {1: 3, 2: 4}}), 6, {FOO: {1, 7}}, owned={FOO: (1, 2)})
    assert (after.member_epoch, after.state) == (5, UNREVOKED)
    assert after.assigned == {FOO: {1: 3}}  # and not yet 7
    assert after.pending_revocation == {FOO: {2: 4}}


def test_partitions_that_the_member_does_not_own_need_not_be_revoked() -> None:
    after = step(member(5, STABLE, {FOO: {1: 3, 2: 4}}), 6, {FOO: {1}}, owned={FOO: (1,)})
    assert (after.member_epoch, after.state, after.pending_revocation) == (6, STABLE, {})


def test_a_member_that_has_not_revoked_everything_waits() -> None:
    before = member(5, UNREVOKED, {FOO: {1: 3}}, {FOO: {2: 4, 3: 4}})
    assert step(before, 6, {FOO: {1}}, owned={FOO: (1, 3)}) is before
    assert step(before, 6, {FOO: {1}}) is before
    after = step(before, 6, {FOO: {1}}, owned={FOO: (1,), BAR: (2,)})
    assert (after.member_epoch, after.state, after.pending_revocation) == (6, STABLE, {})


def test_a_member_that_has_revoked_moves_to_the_newest_target_and_may_have_to_revoke_more() -> None:
    before = member(5, UNREVOKED, {FOO: {1: 3, 2: 3}}, {FOO: {3: 4}})
    after = step(before, 8, {FOO: {1}}, owned={FOO: (1, 2)})
    assert (after.member_epoch, after.state) == (5, UNREVOKED)
    assert (after.assigned, after.pending_revocation) == ({FOO: {1: 3}}, {FOO: {2: 3}})


def test_a_partition_that_was_just_revoked_can_be_assigned_again() -> None:
    before = member(5, UNREVOKED, {FOO: {1: 3}}, {FOO: {2: 4}})
    after = step(before, 7, {FOO: {1, 2}}, owned={FOO: (1,)})
    assert (after.state, after.assigned) == (STABLE, {FOO: {1: 3, 2: 7}})


def test_a_member_waits_in_the_new_epoch_for_partitions_of_others() -> None:
    after = step(member(5, STABLE, {FOO: {1: 3}}), 6, {FOO: {1, 2, 3}}, others={FOO: {2}})
    assert (after.member_epoch, after.state) == (6, UNRELEASED)
    assert after.assigned == {FOO: {1: 3, 3: 6}}
    again = step(after, 6, {FOO: {1, 2, 3}}, others={FOO: {2}})
    assert (again.state, again.assigned) == (UNRELEASED, after.assigned)
    released = step(again, 6, {FOO: {1, 2, 3}})
    assert (released.state, released.assigned) == (STABLE, {FOO: {1: 3, 3: 6, 2: 6}})


def test_a_member_that_waits_follows_a_newer_target() -> None:
    before = member(6, UNRELEASED, {FOO: {1: 3}})
    after = step(before, 7, {FOO: {4}}, owned={FOO: (1,)})
    assert (after.member_epoch, after.state, after.pending_revocation) == (6, UNREVOKED, {FOO: {1: 3}})


def test_unsubscribing_revokes_at_once_in_the_same_epoch() -> None:
    before = member(5, STABLE, {FOO: {1: 3}, BAR: {1: 3}})
    only_foo = frozenset((FOO,))
    after = step(before, 5, {FOO: {1}, BAR: {1}}, owned={BAR: (1,)}, subscribed=only_foo, changed=True)
    assert (after.member_epoch, after.state) == (5, UNREVOKED)
    assert (after.assigned, after.pending_revocation) == ({FOO: {1: 3}}, {BAR: {1: 3}})
    gone = step(before, 5, {FOO: {1}, BAR: {1}}, owned={FOO: (1,)}, subscribed=only_foo, changed=True)
    assert (gone.member_epoch, gone.state) == (5, STABLE)
    assert (gone.assigned, gone.pending_revocation) == ({FOO: {1: 3}}, {})


def test_unsubscribing_adds_to_the_partitions_that_must_be_revoked() -> None:
    before = member(5, UNREVOKED, {FOO: {1: 3}, BAR: {1: 3}}, {BAR: {2: 4}})
    owned = {FOO: (1,), BAR: (1, 2)}
    after = step(before, 6, {FOO: {1}, BAR: {1}}, owned=owned, subscribed=frozenset((FOO,)), changed=True)
    assert (after.assigned, after.pending_revocation) == ({FOO: {1: 3}}, {BAR: {1: 3, 2: 4}})
    assert after.state is UNREVOKED


def test_a_subscription_that_only_grows_revokes_nothing() -> None:
    before = member(5, STABLE, {FOO: {1: 3}})
    assert step(before, 5, {FOO: {1}}, changed=True) is before


def test_partitions_of_unsubscribed_topics_are_not_assigned_even_if_they_are_in_the_target() -> None:
    after = step(member(5, STABLE, {}), 6, {FOO: {1}, BAR: {1}}, subscribed=frozenset((FOO,)))
    assert after.assigned == {FOO: {1: 6}}


def test_a_member_in_an_unknown_state_starts_without_partitions() -> None:
    after = step(member(5, UNKNOWN, {FOO: {1: 3}}), 6, {FOO: {2}}, owned={})
    assert (after.member_epoch, after.state, after.assigned) == (6, STABLE, {FOO: {2: 6}})
