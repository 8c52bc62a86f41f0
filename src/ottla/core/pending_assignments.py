"""The replicas of a broker whose data directory the controller does not know yet, and the requests that tell it
(KIP-858). As Kafka's AssignmentsManager.
"""

import uuid
from collections.abc import Iterable
from itertools import islice

from ottla.core.controller.commands import AssignedReplica, AssignReplicasToDirs
from ottla.model.errors import ErrorCode

Replica = tuple[uuid.UUID, int]  # the topic id and the partition

# Kafka's controllers accept 2250. Fewer are sent, because each side works through all of them at once.
ASSIGNMENTS_PER_REQUEST = 200
# The controller has newer metadata than this broker: the topic is deleted, or the replica is on other brokers now.
_GONE = frozenset(
    {
        ErrorCode.unknown_topic_id,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.not_leader_or_follower,
    }
)


class PendingAssignments:
    def __init__(self) -> None:
        self._directories: dict[Replica, uuid.UUID] = {}

    def __len__(self) -> int:
        return len(self._directories)

    def __contains__(self, replica: Replica) -> bool:
        return replica in self._directories

    def update(self, replica: Replica, actual: uuid.UUID, assigned: uuid.UUID | None) -> None:
        """The replica is in `actual`, and the controller believes it to be in `assigned`."""
        if actual == assigned:
            self._directories.pop(replica, None)
        else:
            self._directories[replica] = actual

    def next_command(self, broker_id: int, broker_epoch: int) -> AssignReplicasToDirs:
        """Asks for the replicas that have waited longest. They stay here until `apply`."""
        by_directory: dict[uuid.UUID, dict[uuid.UUID, list[int]]] = {}
        for (topic_id, index), directory in islice(self._directories.items(), ASSIGNMENTS_PER_REQUEST):
            by_directory.setdefault(directory, {}).setdefault(topic_id, []).append(index)
        return AssignReplicasToDirs(
            broker_id,
            broker_epoch,
            tuple(
                (directory, tuple((topic_id, tuple(indexes)) for topic_id, indexes in topics.items()))
                for directory, topics in by_directory.items()
            ),
        )

    def apply(self, results: Iterable[AssignedReplica]) -> dict[ErrorCode, int]:
        """Removes what is decided. Returns how many must be sent again, by error.

        A replica that has moved on since the request stays here, with its present directory.
        """
        failed: dict[ErrorCode, int] = {}
        for directory, topic_id, index, error in results:
            replica = (topic_id, index)
            if self._directories.get(replica) != directory:
                continue
            del self._directories[replica]
            if error is not ErrorCode.none and error not in _GONE:
                self._directories[replica] = directory  # behind the others
                failed[error] = failed.get(error, 0) + 1
        return failed
