"""The hash of a group's topics is written to the log: it must always be the same for the same topics."""

import uuid

from tests.unit.core.groups.consumer.consumer_groups import Topics

from ottla.core.groups.consumer.topic_hash import TopicHashes
from ottla.core.groups.state import TopicInfo


def topics(*infos: TopicInfo) -> Topics:
    cluster = Topics()
    for info in infos:
        cluster._by_name[info.name] = info
    return cluster


ORDERS = TopicInfo(uuid.UUID(int=1), "orders", 2, (frozenset({"a", "b"}), frozenset()))
PAYMENTS = TopicInfo(uuid.UUID(int=2), "payments", 1)


def hash_of(*infos: TopicInfo) -> int:
    return TopicHashes().of_group([info.name for info in infos], topics(*infos))


def test_the_hash_is_the_same_in_every_release_and_process() -> None:
    assert hash_of(ORDERS, PAYMENTS) == -5503679124335136594


def test_without_topics_the_hash_is_that_of_a_new_group() -> None:
    assert hash_of() == 0
    assert TopicHashes().of_group(["gone"], topics(ORDERS)) == 0


def test_the_order_of_topics_and_missing_topics_do_not_matter() -> None:
    cluster = topics(ORDERS, PAYMENTS)
    hashes = TopicHashes()
    assert hashes.of_group(["orders", "payments"], cluster) == hashes.of_group(
        ["payments", "gone", "orders"], cluster
    )


def test_everything_that_an_assignor_uses_changes_the_hash() -> None:
    others = (
        ORDERS._replace(topic_id=uuid.UUID(int=3)),
        ORDERS._replace(name="other"),
        ORDERS._replace(num_partitions=3),
        ORDERS._replace(racks=(frozenset({"a"}), frozenset({"b"}))),
        ORDERS._replace(racks=(frozenset({"ab"}), frozenset())),
    )
    assert len({hash_of(ORDERS), *(hash_of(other) for other in others)}) == 1 + len(others)


def test_a_cached_hash_is_recomputed_when_its_topic_changes() -> None:
    hashes = TopicHashes()
    cluster = topics(ORDERS)
    before = hashes.of_group(["orders"], cluster)
    cluster._by_name["orders"] = ORDERS._replace(num_partitions=5)
    assert hashes.of_group(["orders"], cluster) != before
    del cluster._by_name["orders"]
    assert hashes.of_group(["orders"], cluster) == 0
    cluster._by_name["orders"] = ORDERS
    assert hashes.of_group(["orders"], cluster) == before
