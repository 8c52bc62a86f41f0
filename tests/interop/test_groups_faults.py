"""Faults in a group: members that are paused beyond their session, members that poll too late, a dozen that start at
once, and a broker that is killed."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.interop.brokers import RunningBroker
from tests.interop.group_clients import (
    GROUP_BROKER,
    PROTOCOLS,
    Members,
    all_records,
    committed,
    describe,
    partitions_of,
    produce_to_each,
    wait_for_owners,
    wait_for_records,
    wait_for_state,
)
from tests.interop.librdkafka import create_topic, wait_until

pytestmark = [pytest.mark.contract, pytest.mark.parametrize("protocol", PROTOCOLS)]

DOZEN = 12


def test_a_commit_of_a_member_that_was_paused_beyond_its_session_is_rejected(
    group_broker: RunningBroker, members: Members, topic_name: str, group_id: str, protocol: str
) -> None:
    bootstrap, wanted = group_broker.bootstrap, partitions_of(topic_name, 4)
    create_topic(bootstrap, topic_name, partitions=4)
    first, zombie = (
        members.start(bootstrap, group_id, topic_name, protocol, commits=False) for _ in range(2)
    )
    wait_for_owners([first, zombie], wanted, each=2)
    _, lost = min(zombie.owned)
    assert zombie.commit(topic_name, lost, 1) is None
    # It does not poll, so it cannot have rejoined when it continues and commits.
    zombie.tell("stop polling")
    zombie.wait_for("stopped polling")
    zombie.pause()
    wait_for_owners([first], wanted)
    assert first.commit(topic_name, lost, 2) is None
    zombie.resume()
    assert zombie.commit(topic_name, lost, 1000) is not None
    assert committed(bootstrap, group_id, topic_name, lost) == 2
    zombie.tell("poll")
    # It gets the error, drops its partitions, and rejoins.
    wait_for_owners([first, zombie], wanted, each=2)
    assert zombie.named("lost")


def test_a_member_that_polls_too_late_loses_its_partitions_and_may_rejoin(
    group_broker: RunningBroker, members: Members, topic_name: str, group_id: str, protocol: str
) -> None:
    bootstrap, wanted = group_broker.bootstrap, partitions_of(topic_name, 4)
    create_topic(bootstrap, topic_name, partitions=4)
    first = members.start(bootstrap, group_id, topic_name, protocol)
    wait_for_owners([first], wanted)
    slow = members.start(bootstrap, group_id, topic_name, protocol, max_poll_interval_ms=3500)
    wait_for_owners([first, slow], wanted, each=2)
    slow.tell("stop polling")
    wait_until(lambda: first.owned == wanted, "the other member has everything")
    slow.tell("poll")
    wait_until(
        lambda: any(event["code"] == "_MAX_POLL_EXCEEDED" for event in slow.named("error")),
        "the client says why",
    )
    wait_for_owners([first, slow], wanted, each=2)


def test_a_dozen_members_that_start_at_once_share_the_partitions_and_each_record_is_processed_once(
    group_broker: RunningBroker, members: Members, topic_name: str, group_id: str, protocol: str
) -> None:
    bootstrap, partitions = group_broker.bootstrap, 2 * DOZEN
    create_topic(bootstrap, topic_name, partitions=partitions)
    produce_to_each(bootstrap, topic_name, partitions, 50)
    # Twelve processes start on few cores: the session must be longer than that.
    patience: dict[str, Any] = {} if protocol == "consumer" else {"session_timeout_ms": 20_000}
    dozen = [members.start(bootstrap, group_id, topic_name, protocol, **patience) for _ in range(DOZEN)]
    wait_for_owners(dozen, partitions_of(topic_name, partitions), each=2, timeout_s=60)
    produce_to_each(bootstrap, topic_name, partitions, 50)
    wait_for_records(dozen, partitions * 100)
    assert all_records(dozen) == [(topic_name, p, n) for p in range(partitions) for n in range(100)]
    assert len(wait_for_state(bootstrap, group_id, "STABLE").members) == DOZEN


def test_the_group_with_its_members_and_offsets_survives_a_kill_of_the_broker(
    own_broker: Callable[..., RunningBroker], members: Members, topic_name: str, group_id: str, protocol: str
) -> None:
    broker = own_broker(set=GROUP_BROKER | {"group.consumer.session.timeout.ms": "20000"})
    bootstrap, wanted = broker.bootstrap, partitions_of(topic_name, 4)
    create_topic(bootstrap, topic_name, partitions=4)
    produce_to_each(bootstrap, topic_name, 4, 50)
    patience: dict[str, Any] = {} if protocol == "consumer" else {"session_timeout_ms": 20_000}
    both = [members.start(bootstrap, group_id, topic_name, protocol, **patience) for _ in range(2)]
    wait_for_owners(both, wanted, each=2)
    wait_for_records(both, 200)
    wait_until(
        lambda: all(committed(bootstrap, group_id, topic_name, p) == 50 for p in range(4)),
        "everything is committed",
    )
    names = {member.member_id for member in describe(bootstrap, group_id).members}
    events = [len(member.events) for member in both]
    broker.kill()
    broker.start()
    produce_to_each(bootstrap, topic_name, 4, 50)
    wait_for_records(both, 400, timeout_s=60)
    assert all_records(both) == [(topic_name, p, n) for p in range(4) for n in range(100)]
    # The same members with the same partitions: no member had to rejoin.
    assert {member.member_id for member in describe(bootstrap, group_id).members} == names
    for member, seen in zip(both, events, strict=True):
        assert not {"assigned", "revoked", "lost"} & {event["event"] for event in member.events[seen:]}
    wait_until(
        lambda: all(committed(bootstrap, group_id, topic_name, p) == 100 for p in range(4)),
        "everything is committed again",
    )
