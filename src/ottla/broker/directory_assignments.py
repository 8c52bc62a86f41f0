"""Tells the controller in which data directories this broker has its replicas (AssignReplicasToDirs, KIP-858).

The controller needs this when a directory fails: it elects other leaders for the replicas in that directory, and for no
others. A broker with one directory has nothing to tell, as the controller knows where its replicas are.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.broker.lazy import Lazy
from ottla.core.controller.image import LOST_DIRECTORY, is_reserved_directory
from ottla.core.pending_assignments import PendingAssignments, Replica
from ottla.model.errors import KafkaError
from ottla.model.ids import TopicPartition
from ottla.storage.log_dirs import LogDirs

if TYPE_CHECKING:
    from ottla.broker.active_controller import ActiveController
    from ottla.broker.background_tasks import BackgroundTasks

logger = logging.getLogger("ottla.partition")

_TIMEOUT_S = 10.0
_RETRY_S_MIN, _RETRY_S_MAX = 0.1, 10.0


class DirectoryAssignments:
    """One request is in flight at a time, with the replicas that have come meanwhile."""

    def __init__(
        self,
        node_id: int,
        log_dirs: LogDirs,
        tasks: "BackgroundTasks",
        *,
        new_controller_client: Callable[[], "ActiveController"],
        broker_epoch: Callable[[], int],
    ) -> None:
        self._node_id = node_id
        self._log_dirs = log_dirs
        self._ids = log_dirs.directory_ids  # also of directories that go offline later
        self._tasks = tasks
        self._controller = Lazy(new_controller_client)
        self._broker_epoch = broker_epoch
        self._pending = PendingAssignments()
        self._is_sending = False

    @property
    def offline_ids(self) -> tuple[UUID, ...]:
        """The directories that have failed since the broker was built. Those that had failed before have no id."""
        return tuple(directory for path, directory in self._ids.items() if path in self._log_dirs.offline)

    def check(self, partition: TopicPartition, replica: Replica, assigned: UUID | None) -> None:
        """The replica was opened or moved, could not be opened, or its metadata has changed.

        `assigned` is the directory that the metadata names. A move between directories is reported after its end; Kafka
        reports it before. If the old disk fails in between, another replica leads for a moment.
        """
        path = self._log_dirs.directory_of(partition)
        if path is not None:
            self._pending.update(replica, self._ids[path], assigned)
        elif replica not in self._pending and self._seems_online(assigned):
            # It is in a directory that is offline, and this broker does not know in which.
            self._pending.update(replica, LOST_DIRECTORY, assigned)
        if self._pending and not self._is_sending:
            self._is_sending = True
            self._tasks.start(self._send_all())

    def _seems_online(self, directory: UUID | None) -> bool:
        """Whether the controller may elect the replica there."""
        if is_reserved_directory(directory):
            return directory != LOST_DIRECTORY
        return any(self._ids[path] == directory for path in self._log_dirs.paths)

    async def _send_all(self) -> None:
        pause_s = _RETRY_S_MIN
        try:
            while self._pending:
                await asyncio.sleep(0)  # partitions that are opened in this turn go into the same request
                if await self._send():
                    pause_s = _RETRY_S_MIN
                else:
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, _RETRY_S_MAX)
        finally:
            self._is_sending = False

    async def _send(self) -> bool:
        """Returns False if the request, or a part of it, must be sent again."""
        command = self._pending.next_command(self._node_id, self._broker_epoch())
        try:
            results = await self._controller.get().submit(command, _TIMEOUT_S)
        except KafkaError as error:
            logger.warning(
                "the controller does not know the directories of %d replicas yet, retrying: %s",
                len(self._pending), error.message,
            )  # fmt: skip
            return False
        failed = self._pending.apply(results)
        for code, count in failed.items():
            logger.warning(
                "the controller rejects the directories of %d replicas, retrying: %s", count, code.name
            )
        return not failed
