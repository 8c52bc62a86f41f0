"""Transaction requests that no correct client sends: they get Kafka's error code and change nothing."""

import contextlib
from collections.abc import Callable, Iterator

import pytest
from tests.interop.brokers import RunningBroker
from tests.interop.kio_client import KioClient
from tests.interop.librdkafka import create_topic, wait_until
from tests.interop.transaction_clients import all_values, committed_values
from tests.interop.transaction_wire import (
    BEFORE_890,
    DESCRIBE_TRANSACTIONS,
    LIST_TRANSACTIONS,
    SINCE_890,
    Request,
    Stage,
    add_offsets,
    add_partitions,
    commit_offset,
    end,
    initialize,
    produce,
    write_marker,
)

pytestmark = pytest.mark.contract

VERSIONS = {"before KIP-890": BEFORE_890, "since KIP-890": SINCE_890}
Case = tuple[Callable[[Stage], Request], str | list[str]]


@pytest.fixture(params=VERSIONS)
def stage(
    request: pytest.FixtureRequest, transaction_broker: RunningBroker, topic_name: str
) -> Iterator[Stage]:
    create_topic(transaction_broker.bootstrap, topic_name, partitions=2)
    with contextlib.closing(KioClient(transaction_broker.bootstrap)) as client:
        stage = Stage(client, topic_name, VERSIONS[request.param])
        stage.set_up()
        yield stage


INITS: dict[str, Case] = {
    "a timeout beyond the maximum": (
        lambda s: initialize(s.ongoing, transaction_timeout=900_001),
        "invalid_transaction_timeout",
    ),
    "a timeout of nothing": (
        lambda s: initialize(s.ongoing, transaction_timeout=0),
        "invalid_transaction_timeout",
    ),
    "a timeout of less than nothing": (
        lambda s: initialize(s.ongoing, transaction_timeout=-1),
        "invalid_transaction_timeout",
    ),
    "an empty transactional id": (lambda s: initialize(""), "invalid_request"),
    "an epoch without a producer id": (
        lambda s: initialize(s.ongoing, producer_id=-1, producer_epoch=3),
        "invalid_request",
    ),
    "a producer id without an epoch": (
        lambda s: initialize(s.ongoing, producer_id=5, producer_epoch=-1),
        "invalid_request",
    ),
    "as a producer that it never was": (
        lambda s: initialize(s.empty, producer_id=987_654_321, producer_epoch=0),
        "producer_fenced",
    ),
    "as a producer of a later epoch": (
        lambda s: initialize(s.empty, producer_id=s.producer[s.empty][0], producer_epoch=7),
        "producer_fenced",
    ),
    "as a producer that it never was, in an old version": (
        lambda s: initialize(s.empty, 3, producer_id=987_654_321, producer_epoch=0),
        "invalid_producer_epoch",
    ),
}
ADD_PARTITIONS: dict[str, Case] = {
    "an unknown transactional id": (
        lambda s: add_partitions(s, transactional_id=s.unknown),
        "invalid_producer_id_mapping",
    ),
    "an empty transactional id": (lambda s: add_partitions(s, transactional_id=""), "invalid_request"),
    "another producer's id": (
        lambda s: add_partitions(s, producer_id=s.producer[s.empty][0]),
        "invalid_producer_id_mapping",
    ),
    "an older epoch": (lambda s: add_partitions(s, epoch_change=-1), "producer_fenced"),
    "an older epoch, in an old version": (
        lambda s: add_partitions(s, 1, epoch_change=-1),
        "invalid_producer_epoch",
    ),
    "an epoch of the future": (lambda s: add_partitions(s, epoch_change=1), "producer_fenced"),
    "a partition that does not exist": (
        lambda s: add_partitions(s, partitions=(9,)),
        "unknown_topic_or_partition",
    ),
    "a partition that does not exist beside one that does": (
        lambda s: add_partitions(s, partitions=(1, 9)),
        ["operation_not_attempted", "unknown_topic_or_partition"],
    ),
    "a topic that does not exist": (
        lambda s: add_partitions(s, topic="never-made"),
        "unknown_topic_or_partition",
    ),
}
ADD_OFFSETS: dict[str, Case] = {
    "an unknown transactional id": (
        lambda s: add_offsets(s, transactional_id=s.unknown),
        "invalid_producer_id_mapping",
    ),
    "another producer's id": (
        lambda s: add_offsets(s, producer_id=s.producer[s.empty][0]),
        "invalid_producer_id_mapping",
    ),
    "an older epoch": (lambda s: add_offsets(s, epoch_change=-1), "producer_fenced"),
    "an older epoch, in an old version": (
        lambda s: add_offsets(s, 1, epoch_change=-1),
        "invalid_producer_epoch",
    ),
}
ENDS: dict[str, Case] = {
    "an unknown transactional id": (
        lambda s: end(s, transactional_id=s.unknown),
        "invalid_producer_id_mapping",
    ),
    "an empty transactional id": (lambda s: end(s, transactional_id=""), "invalid_request"),
    "another producer's id": (
        lambda s: end(s, producer_id=s.producer[s.empty][0]),
        "invalid_producer_id_mapping",
    ),
    "an older epoch": (lambda s: end(s, epoch_change=-1), "producer_fenced"),
    "an older epoch, in an old version": (
        lambda s: end(s, version=1, epoch_change=-1),
        "invalid_producer_epoch",
    ),
    "an epoch of the future": (lambda s: end(s, epoch_change=1), "producer_fenced"),
    "a commit where nothing has begun": (lambda s: end(s, transactional_id=s.empty), "invalid_txn_state"),
    "an abort where nothing has begun, in an old version": (
        lambda s: end(s, commit=False, version=4, transactional_id=s.empty),
        "invalid_txn_state",
    ),
}
PRODUCES: dict[str, Case] = {
    "an older epoch": (lambda s: produce(s, sequence=1, epoch_change=-1), "invalid_producer_epoch"),
    "an older epoch, in a partition that has none of it": (
        lambda s: produce(s, partition=1, epoch_change=-1),
        "invalid_producer_epoch",
    ),
    "an unknown transactional id": (
        lambda s: produce(s, partition=1, transactional_id=s.unknown, producer_id=987_654_321),
        "invalid_producer_id_mapping",
    ),
    "a partition that does not exist": (
        lambda s: produce(s, partition=9),
        "unknown_topic_or_partition",
    ),
    "a sequence number that leaves one out": (
        lambda s: produce(s, sequence=2),
        "out_of_order_sequence_number",
    ),
    "a record outside of the transaction": (
        lambda s: produce(s, sequence=1, attributes=0),
        "invalid_txn_state",
    ),
}
OFFSETS: dict[str, Case] = {
    "an unknown transactional id": (
        lambda s: commit_offset(s, transactional_id=s.unknown, producer_id=987_654_321),
        "invalid_producer_id_mapping",
    ),
    "another producer's id": (
        lambda s: commit_offset(s, producer_id=s.producer[s.empty][0]),
        "invalid_producer_id_mapping",
    ),
    "an older epoch": (lambda s: commit_offset(s, epoch_change=-1), "invalid_producer_epoch"),
    "a member that nobody knows": (
        lambda s: commit_offset(s, member_id="nobody", generation_id=1),
        "unknown_member_id",
    ),
    "a topic that does not exist": (
        lambda s: commit_offset(s, topic="never-made"),
        "unknown_topic_or_partition",
    ),
    "an empty group id": (lambda s: commit_offset(s, group_id=""), "invalid_group_id"),
}
ADMINISTRATION: dict[str, Case] = {
    "describe an unknown transactional id": (
        lambda s: (DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": (s.unknown,)}),
        "transactional_id_not_found",
    ),
    "describe an empty transactional id": (
        lambda s: (DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": ("",)}),
        "invalid_request",
    ),
    "list by what is no regular expression": (
        lambda s: (LIST_TRANSACTIONS, 2, {"transactional_id_pattern": "(ab"}),
        "invalid_regular_expression",
    ),
    "a marker of an older epoch": (
        lambda s: write_marker(s, epoch_change=-1),
        "invalid_producer_epoch",
    ),
    "a marker for a partition that does not exist": (
        lambda s: write_marker(s, partition=9),
        "unknown_topic_or_partition",
    ),
}
CASES: dict[str, Case] = {
    f"{what}: {name}": case
    for what, cases in (
        ("initialize", INITS),
        ("add partitions", ADD_PARTITIONS),
        ("add offsets", ADD_OFFSETS),
        ("end", ENDS),
        ("produce", PRODUCES),
        ("commit offsets", OFFSETS),
        ("admin", ADMINISTRATION),
    )
    for name, case in cases.items()
}


@pytest.mark.parametrize("name", CASES)
def test_bad_input_of_a_transaction_gets_its_error_and_changes_nothing(stage: Stage, name: str) -> None:
    request, error = CASES[name]
    before = stage.look()
    assert sorted(stage.errors(request(stage))) == ([error] if isinstance(error, str) else error)
    assert stage.look() == before
    assert stage.errors(end(stage)) == []


@pytest.mark.parametrize("commit", [True, False])
def test_a_retried_end_succeeds_again_and_the_other_outcome_is_rejected(stage: Stage, commit: bool) -> None:
    ended = stage.accept(end(stage, commit=commit))
    stage.wait_for_state(stage.ongoing, "CompleteCommit" if commit else "CompleteAbort")
    again = stage.accept(end(stage, commit=commit))
    if stage.versions is SINCE_890:
        producer_id, epoch = stage.producer[stage.ongoing]
        assert (ended.producer_id, ended.producer_epoch) == (producer_id, epoch + 1)
        assert again == ended
    before = stage.look()
    assert stage.errors(end(stage, commit=not commit)) == ["invalid_txn_state"]
    assert stage.look() == before


def test_a_delayed_end_does_not_end_the_next_transaction(
    stage: Stage, transaction_broker: RunningBroker
) -> None:
    """Jepsen found this in every Kafka before KIP-890: a delayed commit request commits the next transaction."""
    delayed = end(stage)
    ended = stage.accept(delayed)
    stage.wait_for_state(stage.ongoing, "CompleteCommit")
    if stage.versions is SINCE_890:
        stage.producer[stage.ongoing] = (ended.producer_id, ended.producer_epoch)
    else:
        stage.accept_in_time(add_partitions(stage))
    stage.accept_in_time(produce(stage, value=b"next", sequence=0 if stage.versions is SINCE_890 else 1))
    if stage.versions is SINCE_890:
        assert stage.errors(delayed) == ["producer_fenced"]
        assert stage.state(stage.ongoing) == "Ongoing"
        stage.accept(end(stage, commit=False))
        wanted = ["mine"]
    else:
        assert stage.errors(delayed) == []  # it cannot be distinguished from a request in time
        wanted = ["mine", "next"]
    wait_until(lambda: stage.state(stage.ongoing).startswith("Complete"), "the next one is complete")
    assert committed_values(transaction_broker.bootstrap, stage.topic) == wanted


def test_a_record_after_the_end_is_rejected_and_opens_no_transaction(
    stage: Stage, transaction_broker: RunningBroker
) -> None:
    late = [produce(stage, value=b"late", sequence=1), produce(stage, value=b"late", partition=1)]
    stage.accept(end(stage))
    stage.wait_for_state(stage.ongoing, "CompleteCommit")
    error = "invalid_producer_epoch" if stage.versions is SINCE_890 else "transaction_abortable"
    for request in late:
        assert stage.errors(request) == [error]
    assert [stage.end_offset(partition, stable=True) for partition in (0, 1)] == [2, 0]
    assert all_values(transaction_broker.bootstrap, stage.topic) == ["mine"]


def test_a_record_for_a_partition_that_an_older_client_did_not_add_is_rejected(
    stage: Stage,
) -> None:
    """KIP-890, part 2: the first record adds the partition."""
    refused = {10: "invalid_txn_state", 11: "transaction_abortable"}
    for version, error in refused.items():
        assert stage.errors(produce(stage, partition=1, version=version)) == [error]
    assert stage.end_offset(1) == 0
    if stage.versions is SINCE_890:
        stage.accept(produce(stage, partition=1))
        assert stage.end_offset(1) == 1


def test_a_producer_that_initializes_during_a_transaction_waits_for_its_abort_and_fences_the_other(
    stage: Stage, transaction_broker: RunningBroker
) -> None:
    producer_id, epoch = stage.producer[stage.ongoing]
    assert stage.errors(initialize(stage.ongoing)) == ["concurrent_transactions"]
    new_id, new_epoch = stage.initialize(stage.ongoing)
    assert (new_id, new_epoch > epoch) == (producer_id, True)
    assert stage.errors(end(stage)) == ["producer_fenced"]
    assert stage.errors(produce(stage, sequence=1)) == ["invalid_producer_epoch"]
    assert stage.state(stage.ongoing) == "Empty"
    assert committed_values(transaction_broker.bootstrap, stage.topic) == []


def test_a_producer_that_initializes_again_after_an_error_keeps_its_id_and_aborts_its_transaction(
    stage: Stage,
) -> None:
    """KIP-360. A retry gets the response that was lost."""
    producer_id, epoch = stage.producer[stage.empty]
    again = initialize(stage.empty, producer_id=producer_id, producer_epoch=epoch)
    first, second = stage.accept(again), stage.accept(again)
    assert (first.producer_id, first.producer_epoch) == (producer_id, epoch + 1)
    assert (second.producer_id, second.producer_epoch) == (producer_id, epoch + 1)


def test_transactions_are_listed_by_state_producer_duration_and_pattern(stage: Stage) -> None:
    def listed(**filters: object) -> set[str]:
        answer = stage.accept((LIST_TRANSACTIONS, 2, filters))
        mine = {stage.ongoing, stage.empty, stage.unknown}
        return {str(line.transactional_id) for line in answer.transaction_states} & mine

    assert listed() == {stage.ongoing, stage.empty}
    assert listed(state_filters=("Ongoing",)) == {stage.ongoing}
    assert listed(state_filters=("Empty", "Ongoing")) == {stage.ongoing, stage.empty}
    assert listed(producer_id_filters=(stage.producer[stage.empty][0],)) == {stage.empty}
    # An id without a transaction passes every duration filter.
    assert listed(duration_filter=3_600_000) == {stage.empty}
    assert listed(duration_filter=3_600_000, state_filters=("Ongoing",)) == set()
    wait_until(lambda: listed(duration_filter=0, state_filters=("Ongoing",)) == {stage.ongoing}, "time goes")
    assert listed(transactional_id_pattern=f"{stage.empty[:-1]}.") == {stage.empty}
    assert listed(transactional_id_pattern=stage.empty[:-1]) == set()
    answer = stage.accept((LIST_TRANSACTIONS, 2, {"state_filters": ("Ongoing", "Asleep")}))
    assert answer.unknown_state_filters == ("Asleep",)
