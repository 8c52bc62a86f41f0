import uuid

from ottla.core.controller.commands import AssignedReplica, AssignReplicasToDirs
from ottla.core.controller.image import UNASSIGNED_DIRECTORY
from ottla.core.pending_assignments import ASSIGNMENTS_PER_REQUEST, PendingAssignments
from ottla.model.errors import ErrorCode

ONE, TWO = uuid.UUID(int=1 << 90), uuid.UUID(int=2 << 90)
A, B = uuid.UUID(int=11 << 80), uuid.UUID(int=12 << 80)


def results_of(command: AssignReplicasToDirs, error: ErrorCode = ErrorCode.none) -> list[AssignedReplica]:
    return [
        AssignedReplica(directory, topic_id, index, error)
        for directory, topics in command.directories
        for topic_id, indexes in topics
        for index in indexes
    ]


def test_a_replica_where_the_controller_believes_it_to_be_needs_no_request() -> None:
    pending = PendingAssignments()
    pending.update((A, 0), ONE, ONE)
    assert not pending


def test_a_request_has_all_replicas_by_directory_and_topic() -> None:
    pending = PendingAssignments()
    for replica, directory in (((A, 0), ONE), ((B, 0), TWO), ((A, 2), ONE), ((B, 1), ONE)):
        pending.update(replica, directory, UNASSIGNED_DIRECTORY)
    assert pending.next_command(7, 40) == AssignReplicasToDirs(
        7, 40, ((ONE, ((A, (0, 2)), (B, (1,)))), (TWO, ((B, (0,)),)))
    )


def test_a_request_is_repeated_until_it_is_answered() -> None:
    pending = PendingAssignments()
    pending.update((A, 0), ONE, None)
    command = pending.next_command(7, 40)
    assert pending.next_command(7, 40) == command
    assert pending.apply(results_of(command)) == {}
    assert not pending


def test_a_large_number_is_sent_in_several_requests() -> None:
    pending = PendingAssignments()
    for index in range(ASSIGNMENTS_PER_REQUEST + 5):
        pending.update((A, index), ONE, UNASSIGNED_DIRECTORY)
    first = results_of(pending.next_command(7, 40))
    assert len(first) == ASSIGNMENTS_PER_REQUEST
    pending.apply(first)
    assert [result.partition for result in results_of(pending.next_command(7, 40))] == [
        ASSIGNMENTS_PER_REQUEST + number for number in range(5)
    ]


def test_replicas_that_the_controller_does_not_have_are_forgotten() -> None:
    pending = PendingAssignments()
    for index in range(3):
        pending.update((A, index), ONE, UNASSIGNED_DIRECTORY)
    errors = (
        ErrorCode.unknown_topic_id,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.not_leader_or_follower,
    )
    results = [AssignedReplica(ONE, A, index, error) for index, error in enumerate(errors)]
    assert pending.apply(results) == {}
    assert not pending


def test_a_replica_that_was_rejected_is_sent_again_behind_the_others() -> None:
    pending = PendingAssignments()
    pending.update((A, 0), ONE, UNASSIGNED_DIRECTORY)
    command = pending.next_command(7, 40)
    pending.update((A, 1), ONE, UNASSIGNED_DIRECTORY)
    assert pending.apply(results_of(command, ErrorCode.unknown_server_error)) == {
        ErrorCode.unknown_server_error: 1
    }
    assert [result.partition for result in results_of(pending.next_command(7, 40))] == [1, 0]


def test_a_replica_that_moves_during_a_request_is_sent_again() -> None:
    pending = PendingAssignments()
    pending.update((A, 0), ONE, UNASSIGNED_DIRECTORY)
    command = pending.next_command(7, 40)
    pending.update((A, 0), TWO, UNASSIGNED_DIRECTORY)
    pending.apply(results_of(command))
    assert results_of(pending.next_command(7, 40)) == [AssignedReplica(TWO, A, 0, ErrorCode.none)]
    pending.update((A, 0), TWO, TWO)
    assert not pending
