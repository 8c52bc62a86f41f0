"""Sends the in-sync replicas that leaders propose to the controller (AlterPartition, KIP-497).

One request is in flight at a time, with the proposals that have come meanwhile. The leader counts a proposed replica as
in sync before the controller has decided, so nothing is committed too early, whatever it decides.
"""

import asyncio
import logging
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from ottla.broker.hosted_partition import HostedPartition
from ottla.core.controller.commands import (
    AlteredPartition,
    AlterPartition,
    AlterPartitionResult,
    AlterPartitionTopic,
)
from ottla.core.partition.leader import PartitionLeader
from ottla.env import Env
from ottla.model.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.active_controller import ActiveController
    from ottla.broker.background_tasks import BackgroundTasks

logger = logging.getLogger("ottla.replication")

_RETRY_S = 0.2
# The controller knows newer metadata, which is on its way to this broker and decides on the proposal.
_AWAIT_METADATA = frozenset(
    {
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.invalid_update_version,
        ErrorCode.invalid_request,
        ErrorCode.new_leader_elected,
    }
)
_TIMEOUT_S = 10.0
# A broker that comes back joins thousands of ISRs. Each side of a request works through all of its partitions at once.
PROPOSALS_PER_REQUEST = 200


class _Proposal(NamedTuple):
    hosted: HostedPartition
    leader: PartitionLeader
    isr: tuple[int, ...]

    @property
    def is_current(self) -> bool:
        """Whether the leader still waits for the decision. Not if its disk has failed: others must lead then."""
        hosted, leader = self.hosted, self.leader
        return hosted.failure is None and hosted.role is leader and leader.replicas.proposed == self.isr


class IsrChanges:
    def __init__(
        self,
        env: Env,
        controller: "ActiveController",
        tasks: "BackgroundTasks",
        *,
        local_id: int,
        broker_epoch: Callable[[], int],
    ) -> None:
        self._env = env
        self._controller = controller
        self._tasks = tasks
        self._local_id = local_id
        self._broker_epoch = broker_epoch
        self._proposals: dict[tuple[UUID, int], _Proposal] = {}
        self._is_sending = False

    def propose(self, hosted: HostedPartition, leader: PartitionLeader, isr: tuple[int, ...]) -> None:
        """`leader` has proposed `isr`. The answer is `isr_committed`, or the withdrawal of the proposal."""
        self._proposals[hosted.topic_id, hosted.topic_partition.partition] = _Proposal(hosted, leader, isr)
        if not self._is_sending:
            self._is_sending = True
            self._tasks.start(self._send_all())

    async def _send_all(self) -> None:
        try:
            while self._proposals:
                sent = dict(islice(self._proposals.items(), PROPOSALS_PER_REQUEST))
                for key in sent:
                    del self._proposals[key]
                await self._send(sent)
        finally:
            self._is_sending = False

    async def _send(self, proposals: dict[tuple[UUID, int], _Proposal]) -> None:
        current = {key: proposal for key, proposal in proposals.items() if proposal.is_current}
        if not current:
            return
        try:
            results = await self._controller.submit(self._command(current), _TIMEOUT_S)
            for result in results:
                found = current.get((result.topic_id, result.index))
                if found is not None and self._apply(found, result):
                    del current[result.topic_id, result.index]
        except Exception as error:
            # Also after a bug: a proposal that is never sent again would limit the high watermark for ever.
            logger.warning(
                "the ISR of %d partitions is not known to be changed, retrying: %s",
                len(current),
                error,
                exc_info=None if isinstance(error, KafkaError) else error,
            )
        if current:
            await self._retry_later(current)

    async def _retry_later(self, proposals: dict[tuple[UUID, int], _Proposal]) -> None:
        await asyncio.sleep(_RETRY_S)
        self._proposals = proposals | self._proposals

    def _command(self, proposals: dict[tuple[UUID, int], _Proposal]) -> AlterPartition:
        by_topic: dict[UUID, list[AlteredPartition]] = {}
        for (topic_id, index), (_, leader, isr) in proposals.items():
            by_topic.setdefault(topic_id, []).append(
                AlteredPartition(
                    index,
                    leader.leader_epoch,
                    tuple((replica_id, self._epoch_of(leader, replica_id)) for replica_id in isr),
                    leader_recovery_state=0,
                    partition_epoch=leader.partition_epoch,
                )
            )
        return AlterPartition(
            self._local_id,
            self._broker_epoch(),
            tuple(
                AlterPartitionTopic(topic_id, tuple(partitions)) for topic_id, partitions in by_topic.items()
            ),
        )

    def _epoch_of(self, leader: PartitionLeader, replica_id: int) -> int:
        """KIP-903: the controller rejects a replica that has restarted since its last fetch."""
        if replica_id == self._local_id:
            return self._broker_epoch()
        return leader.replicas.followers[replica_id].broker_epoch

    def _apply(self, proposal: _Proposal, result: AlterPartitionResult) -> bool:
        """Returns False if the proposal must be sent again: it is not known whether the controller has changed the ISR.

        Until that is known the proposal limits the high watermark. Otherwise a replica that the controller has added
        could be elected without records that were committed meanwhile.
        """
        hosted, leader = proposal.hosted, proposal.leader
        if not proposal.is_current:
            return True
        if result.error is ErrorCode.none:
            logger.info("%s: the in-sync replicas are %s", hosted.topic_partition, list(result.isr))
            if len(result.isr) < len(leader.isr):
                # The metadata brings the smaller ISR behind the configs that the controller knew. With it and an older
                # min.insync.replicas, the leader could commit records alone that an eligible leader does not have.
                return True
            hosted.isr_committed(
                result.isr,
                (self._local_id, *leader.replicas.followers),
                result.partition_epoch,
                self._env.clock.monotonic_ms(),
            )
            return True
        logger.info("%s: the controller rejects the ISR %s: %s",
                    hosted.topic_partition, list(proposal.isr), result.error.name)  # fmt: skip
        if result.error is ErrorCode.ineligible_replica:
            # The epochs were right, so no controller has changed the ISR. A later fetch proposes again.
            hosted.isr_rejected(leader, self._env.clock.monotonic_ms())
            return True
        return result.error in _AWAIT_METADATA
