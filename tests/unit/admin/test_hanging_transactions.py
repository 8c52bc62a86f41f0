"""Which open transactions are hanging, from the reports of partitions and coordinators."""

from ottla.admin.hanging_transactions import OpenTransaction, without_coordinator
from ottla.admin.nodes import Node
from ottla.admin.transactions import TransactionDescription
from ottla.model.ids import TopicPartition

PARTITION = TopicPartition("orders", 0)


def opened(producer_id: int = 7, partition: TopicPartition = PARTITION) -> OpenTransaction:
    return OpenTransaction(*partition, 5, producer_id, 0, -1, 1000)


def known(state: str, *partitions: TopicPartition) -> dict[int, TransactionDescription]:
    node = Node(1, "127.0.0.1", 9092)
    return {7: TransactionDescription("billing", state, node, 7, 0, 60_000, 1000, list(partitions))}


def test_a_transaction_whose_producer_no_coordinator_knows_is_hanging() -> None:
    assert without_coordinator([opened()], {}) == [opened()]
    assert without_coordinator([opened(8)], known("Ongoing", PARTITION)) == [opened(8)]


def test_a_transaction_that_its_coordinator_has_in_this_partition_is_not_hanging() -> None:
    for state in ("Ongoing", "PrepareCommit", "PrepareAbort"):
        assert without_coordinator([opened()], known(state, PARTITION)) == []


def test_a_transaction_that_its_coordinator_has_only_in_other_partitions_is_hanging() -> None:
    assert without_coordinator([opened()], known("Ongoing", TopicPartition("orders", 1))) == [opened()]
    assert without_coordinator([opened()], known("CompleteCommit")) == [opened()]


def test_hanging_transactions_are_sorted_by_partition() -> None:
    found = [opened(9, TopicPartition("orders", 2)), opened(8, TopicPartition("a", 3)), opened(7)]
    assert without_coordinator(found, {}) == [found[1], found[2], found[0]]
