"""A member of the consumer protocol (KIP-848) that behaves as Kafka's consumer."""

import asyncio
from uuid import UUID

from kio.schema.consumer_group_heartbeat.v1.response import ConsumerGroupHeartbeatResponse

from ottla.model.errors import ErrorCode
from ottla.sim.client import error_of
from ottla.sim.group_client import Identity
from ottla.sim.group_members import GROUP_RETRIABLE, TIMEOUTS, GroupMember
from ottla.sim.history import Violation
from ottla.sim.partition_clients import RETRY_PAUSE_S

# Member epochs that say that a member leaves; the second keeps the place of a static member.
_LEAVE_EPOCH, _LEAVE_STATIC_MEMBER_EPOCH = -1, -2


class ConsumerMember(GroupMember):
    """Gives up the partitions that the coordinator takes away, and reports it."""

    async def _coordinate(self) -> None:
        await self._find_coordinator()
        self.identity = self.identity._replace(
            member_id=str(UUID(int=self.random.getrandbits(128))), generation=0
        )
        is_full = True
        last_sent: list[int] | None = None
        while True:
            sent_s = self._now_s()
            owned = sorted(self.ownerships)
            reported = owned if is_full or owned != last_sent else None
            response = await self.client.consumer_heartbeat(
                self.identity, TIMEOUTS if is_full else None, reported
            )
            if self.identity.generation > 0 and not self.has_lease:
                await self._handle_lease_end()
                self._start_over()
                is_full = True
                continue
            error = error_of(response)
            is_full = error != ErrorCode.none
            if response is not None and not is_full and self._extend_lease(sent_s):
                last_sent = owned
                self.identity = self.identity._replace(generation=response.member_epoch)
                assigned = _assigned(response)
                if assigned is None or not await self._reconcile(assigned):
                    await asyncio.sleep(response.heartbeat_interval.total_seconds())
            elif error in (
                ErrorCode.fenced_member_epoch,
                ErrorCode.unknown_member_id,
                ErrorCode.fenced_instance_id,
            ):
                self._start_over()
            elif error in (ErrorCode.none, ErrorCode.unreleased_instance_id) or error in GROUP_RETRIABLE:
                is_full = True
                await asyncio.sleep(RETRY_PAUSE_S)
            else:
                raise Violation(f"{self.identity} of {self.client.group_id} got {error.name}")

    def _start_over(self) -> None:
        self.abandon()
        self.identity = self.identity._replace(generation=0)

    async def _reconcile(self, assigned: list[int]) -> bool:
        """Returns whether the member has to send a heartbeat at once."""
        revoked = [index for index in self.ownerships if index not in assigned]
        new = [index for index in assigned if index not in self.ownerships]
        await self._revoke(revoked)
        if not self.has_lease:
            return True
        self._assign(new)
        return bool(revoked or new)

    def _offset_fetch_identity(self) -> Identity | None:
        return self.identity

    async def _leave(self) -> None:
        if self.identity.generation > 0:
            epoch = _LEAVE_EPOCH if self.identity.instance_id is None else _LEAVE_STATIC_MEMBER_EPOCH
            await self.client.consumer_heartbeat(self.identity._replace(generation=epoch), None, None)


def _assigned(response: ConsumerGroupHeartbeatResponse) -> list[int] | None:
    if response.assignment is None:
        return None
    return [index for topic in response.assignment.topic_partitions for index in topic.partitions]
