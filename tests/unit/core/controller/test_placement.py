"""Replicas of new partitions are spread evenly, over different brokers and different racks."""

import uuid
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from ottla.core.controller.image import BrokerImage
from ottla.core.controller.placement import place_replicas
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.metadata_records.records import Endpoint


def broker(broker_id: int, rack: str | None = None, fenced: bool = False) -> BrokerImage:
    return BrokerImage(broker_id, 0, uuid.UUID(int=1), (), (), rack, fenced, False, (), None)


def test_leaders_are_placed_round_robin_and_followers_at_increasing_distances() -> None:
    placed = place_replicas([broker(each) for each in range(6)], 10, 3, start=4)
    assert placed[:3] == [(4, 5, 0), (5, 0, 1), (0, 1, 2)]


def test_replicas_are_spread_evenly() -> None:
    placed = place_replicas([broker(each) for each in range(6)], 12, 3, start=4)
    assert Counter(each for replicas in placed for each in replicas) == dict.fromkeys(range(6), 6)


def test_the_followers_of_a_leader_differ_from_round_to_round() -> None:
    placed = place_replicas([broker(each) for each in range(4)], 12, 2, start=0)
    assert [replicas for replicas in placed if replicas[0] == 0] == [(0, 1), (0, 2), (0, 3)]


def test_replicas_alternate_between_racks_so_that_a_rack_may_fail() -> None:
    brokers = [broker(0, "A"), broker(1, "A"), broker(2, "B"), broker(3, "B")]
    placed = place_replicas(brokers, 4, 2, start=0)
    assert placed == [(0, 2), (2, 0), (1, 3), (3, 1)]


def test_more_replicas_than_racks_use_a_rack_twice() -> None:
    brokers = [broker(0, "A"), broker(1, "A"), broker(2, "B")]
    assert [sorted(replicas) for replicas in place_replicas(brokers, 3, 3, start=7)] == [[0, 1, 2]] * 3


def test_a_fenced_broker_is_placed_last_and_never_as_leader() -> None:
    brokers = [broker(1), broker(2, fenced=True), broker(3)]
    assert all(2 not in replicas for replicas in place_replicas(brokers, 5, 2, start=0))
    placed = place_replicas(brokers, 5, 3, start=0)
    assert all(replicas[-1] == 2 for replicas in placed)


def test_too_few_brokers_are_rejected_with_their_number() -> None:
    with pytest.raises(KafkaError, match="of 3 cannot be reached because only 2 broker") as rejected:
        place_replicas([broker(1), broker(2)], 1, 3, start=0)
    assert rejected.value.code is ErrorCode.invalid_replication_factor


def test_placement_fails_if_all_brokers_are_fenced() -> None:
    with pytest.raises(KafkaError, match="All brokers are currently fenced"):
        place_replicas([broker(1, fenced=True)], 1, 1, start=0)


@examples(100)
@given(
    racks=st.lists(st.tuples(st.sampled_from("ABC"), st.booleans()), min_size=1, max_size=9),
    partitions=st.integers(1, 30),
    factor=st.integers(1, 5),
    start=st.integers(0, 2**31),
)
def test_every_placement_has_distinct_brokers_an_active_leader_and_as_many_racks_as_possible(
    racks: list[tuple[str, bool]], partitions: int, factor: int, start: int
) -> None:
    brokers = [broker(index, rack, fenced) for index, (rack, fenced) in enumerate(racks)]
    if factor > len(brokers) or all(each.fenced for each in brokers):
        with pytest.raises(KafkaError):
            place_replicas(brokers, partitions, factor, start)
        return
    placed = place_replicas(brokers, partitions, factor, start)
    assert len(placed) == partitions
    for replicas in placed:
        assert len(set(replicas)) == len(replicas) == factor
        assert not brokers[replicas[0]].fenced
        assert len({brokers[each].rack for each in replicas}) == min(
            factor, len({each.rack for each in brokers})
        )


@examples(50)
@given(
    per_rack=st.integers(1, 3), racks=st.integers(1, 4), rounds=st.integers(1, 3), start=st.integers(0, 99)
)
def test_equal_racks_get_equal_shares_of_leaders(per_rack: int, racks: int, rounds: int, start: int) -> None:
    brokers = [broker(index, f"rack{index % racks}") for index in range(per_rack * racks)]
    placed = place_replicas(brokers, rounds * len(brokers), 1, start)
    assert Counter(replicas[0] for replicas in placed) == {each.broker_id: rounds for each in brokers}


def worker(broker_id: int, host: str, rack: str | None = None, fenced: bool = False) -> BrokerImage:
    """One of several brokers on a host."""
    end_point = Endpoint(name="PLAINTEXT", host=host, port=9092 + broker_id, security_protocol=0)
    return broker(broker_id, rack, fenced)._replace(end_points=(end_point,))


@examples(100)
@given(
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(0, 2**31),
    st.booleans(),
)
def test_replicas_go_to_as_many_hosts_as_possible(
    hosts: int, workers: int, factor: int, start: int, has_racks: bool
) -> None:
    factor = min(factor, hosts * workers)
    brokers = [
        worker(host + 1000 * number, f"h{host}", f"r{host % 2}" if has_racks else None)
        for host in range(hosts)
        for number in range(workers)
    ]
    for replicas in place_replicas(brokers, 8, factor, start):
        assert len(set(replicas)) == factor
        assert len({replica % 1000 for replica in replicas}) == min(factor, hosts)


def test_the_workers_of_a_host_get_equal_shares() -> None:
    brokers = [worker(host + 1000 * number, f"h{host}") for host in range(3) for number in range(2)]
    placed = place_replicas(brokers, 60, 2, start=1)
    for position in range(2):
        counts = Counter(replicas[position] for replicas in placed)
        assert (min(counts.values()), max(counts.values())) == (10, 10)


def test_a_second_live_broker_of_a_host_is_better_than_a_fenced_broker_of_another_host() -> None:
    brokers = [worker(1, "a"), worker(2, "a"), worker(3, "b", fenced=True), worker(4, "b", fenced=True)]
    for replicas in place_replicas(brokers, 8, 2, start=0):
        assert set(replicas) == {1, 2}
    for replicas in place_replicas(brokers, 8, 3, start=0):
        assert set(replicas[:2]) == {1, 2}


def test_fenced_brokers_are_on_different_hosts_too() -> None:
    brokers = [
        worker(1, "a"),
        *(worker(each, "a", fenced=True) for each in (2, 3)),
        worker(4, "b", fenced=True),
    ]
    assert all(replicas == (1, 4) for replicas in place_replicas(brokers, 8, 2, start=0))


def test_a_rack_whose_brokers_are_all_fenced_gets_one_replica_as_in_kafka() -> None:
    """StripedReplicaPlacer of Kafka 4.3.1 places [1, 4], [2, 3], [5, 4] with these brokers and two replicas."""
    brokers = [
        *(broker(each, "A") for each in (1, 2, 5)),
        *(broker(each, "B", fenced=True) for each in (3, 4)),
    ]
    for replicas in place_replicas(brokers, 8, 2, start=0):
        assert len({1, 2, 5}.intersection(replicas)) == 1
    for replicas in place_replicas(brokers, 8, 3, start=0):
        assert len({1, 2, 5}.intersection(replicas)) == 2


def test_a_live_worker_in_one_rack_is_better_than_a_fenced_broker_in_another_with_a_replica() -> None:
    brokers = [
        worker(1, "a", "A"),
        worker(2, "a", "A"),
        worker(3, "b", "B"),
        worker(4, "c", "B", fenced=True),
    ]
    for replicas in place_replicas(brokers, 8, 3, start=0):
        assert set(replicas) == {1, 2, 3}


@examples(100)
@given(
    brokers=st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), min_size=1, max_size=9),
    factor=st.integers(2, 5),
    start=st.integers(0, 2**31),
)
def test_without_racks_fenced_brokers_get_replicas_only_when_all_live_ones_have_one(
    brokers: list[tuple[str, bool]], factor: int, start: int
) -> None:
    brokers = [("a", False), *brokers]
    workers = [worker(index, host, fenced=fenced) for index, (host, fenced) in enumerate(brokers)]
    live, factor = {each.broker_id for each in workers if not each.fenced}, min(factor, len(workers))
    for replicas in place_replicas(workers, 8, factor, start):
        assert len(live.intersection(replicas)) == min(factor, len(live))
        used = {brokers[each][0] for each in live.intersection(replicas)}
        assert len(used) == min(factor, len({brokers[each][0] for each in live}))


def test_brokers_that_all_have_the_same_host_are_placed_as_if_each_had_its_own() -> None:
    """As on a development machine, where all advertise localhost."""
    racks = ("r1", "r1", "r2", "r2")
    alike = [worker(each, "localhost", rack) for each, rack in enumerate(racks)]
    apart = [worker(each, f"h{each}", rack) for each, rack in enumerate(racks)]
    assert place_replicas(alike, 12, 3, start=5) == place_replicas(apart, 12, 3, start=5)
