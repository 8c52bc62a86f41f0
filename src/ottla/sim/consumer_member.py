"""A member of the consumer protocol (KIP-848), as Kafka's consumer is."""

import asyncio
from uuid import UUID

from kio.schema.consumer_group_heartbeat.v1.response import ConsumerGroupHeartbeatResponse

from ottla.model.errors import ErrorCode
from ottla.sim.group_client import Identity
from ottla.sim.group_members import AGAIN, TIMEOUTS, GroupMember
from ottla.sim.history import Violation
from ottla.sim.workload import RETRY_PAUSE_S

LEAVES, LEAVES_FOR_A_WHILE = -1, -2  # as epochs


class ConsumerMember(GroupMember):
    """The coordinator assigns; it gives up what it is not assigned any more, and says so."""

    async def _coordinate(self) -> None:
        await self._find_coordinator()
        self.who = self.who._replace(member_id=str(UUID(int=self.random.getrandbits(128))), generation=0)
        tells_all = True
        told: list[int] | None = None
        while True:
            sent_s = self._now_s()
            owned = sorted(self.tenures)
            news = owned if tells_all or owned != told else None
            answer = await self.client.consumer_heartbeat(self.who, TIMEOUTS if tells_all else None, news)
            if self.who.generation > 0 and not self.has_lease:
                await self._lapse()
                self._start_over()
                tells_all = True
                continue
            error = ErrorCode.request_timed_out if answer is None else answer.error_code
            tells_all = error != ErrorCode.none
            if answer is not None and not tells_all and self._extend_lease(sent_s):
                told = owned
                self.who = self.who._replace(generation=answer.member_epoch)
                assigned = _assigned(answer)
                if assigned is None or not await self._reconcile(assigned):
                    await asyncio.sleep(answer.heartbeat_interval.total_seconds())
            elif error in (
                ErrorCode.fenced_member_epoch,
                ErrorCode.unknown_member_id,
                ErrorCode.group_id_not_found,
                ErrorCode.fenced_instance_id,
            ):
                self._start_over()
            elif error in (ErrorCode.none, ErrorCode.unreleased_instance_id) or error in AGAIN:
                tells_all = True
                await asyncio.sleep(RETRY_PAUSE_S)
            else:
                raise Violation(f"{self.who} of {self.client.group_id} was told {error.name}")

    def _start_over(self) -> None:
        self.abandon()
        self.who = self.who._replace(generation=0)

    async def _reconcile(self, assigned: list[int]) -> bool:
        """Whether there is something to tell the coordinator at once."""
        gone = [index for index in self.tenures if index not in assigned]
        new = [index for index in assigned if index not in self.tenures]
        await self._revoke(gone)
        if not self.has_lease:
            return True
        self._assign(new)
        return bool(gone or new)

    def _as_reader(self) -> Identity | None:
        return self.who

    async def _leave(self) -> None:
        if self.who.generation > 0:
            leaving = LEAVES if self.who.instance_id is None else LEAVES_FOR_A_WHILE
            await self.client.consumer_heartbeat(self.who._replace(generation=leaving), None, None)


def _assigned(answer: ConsumerGroupHeartbeatResponse) -> list[int] | None:
    if answer.assignment is None:
        return None
    return [index for topic in answer.assignment.topic_partitions for index in topic.partitions]
