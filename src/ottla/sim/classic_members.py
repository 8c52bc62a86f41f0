"""Members of the classic protocol that behave as Kafka's consumers: eager and cooperative (KIP-429)."""

import asyncio
from collections.abc import Mapping

from ottla.model.errors import ErrorCode
from ottla.sim.group_client import Claim, Identity
from ottla.sim.group_members import GROUP_RETRIABLE, TIMEOUTS, GroupMember
from ottla.sim.history import Violation
from ottla.sim.partition_clients import RETRY_PAUSE_S


class ClassicMember(GroupMember):
    """An eager member: it gives up all partitions before it rejoins."""

    protocol = "range"

    async def _coordinate(self) -> None:
        await self._find_coordinator()
        while True:
            if not await self._join():
                await asyncio.sleep(RETRY_PAUSE_S)
            elif not await self._accept_assignment():
                await self._send_heartbeats()

    async def _join(self) -> bool:
        """Joins and syncs; sets `_assigned`. Returns whether it succeeded."""
        if not self.has_lease:
            self.abandon()
        self._claim = Claim(self.identity.generation, tuple(self.ownerships))
        error, joined = await self.client.join(self.identity, TIMEOUTS, self.protocol, self._claim)
        if joined is not None and error in (ErrorCode.none, ErrorCode.member_id_required):
            self.identity = Identity(joined.member_id, joined.generation_id, self.identity.instance_id)
        if error != ErrorCode.none or joined is None:
            self._check_error(error)
            return error == ErrorCode.member_id_required and await self._join()
        is_leader = joined.leader == joined.member_id and not joined.skip_assignment
        claims = self.client.claims(joined) if is_leader else {}
        sent_s = self._now_s()
        error, self._assigned = await self.client.sync(
            self.identity, self.protocol, self._assign_partitions(claims) if is_leader else {}
        )
        if error != ErrorCode.none:
            self._check_error(error)
            return False
        if not self.has_lease:
            self.abandon()
        return self._extend_lease(sent_s)

    def _assign_partitions(self, claims: Mapping[str, Claim]) -> dict[str, list[int]]:
        """The assignment by the leader: consecutive partitions for each member, in the order of the member ids."""
        members, partitions = sorted(claims), self._topic.partitions
        return {
            member: list(range(index * partitions // len(members), (index + 1) * partitions // len(members)))
            for index, member in enumerate(members)
        }

    async def _accept_assignment(self) -> bool:
        """Takes ownership of `_assigned`. Returns whether the member has to rejoin at once."""
        self._assign(list(self._assigned))
        return False

    async def _rejoin(self) -> None:
        """Called when the group rebalances, before the member joins again."""
        await self._revoke(list(self.ownerships))

    async def _send_heartbeats(self) -> None:
        """Returns when the member has to join again."""
        while True:
            sent_s = self._now_s()
            error = await self.client.heartbeat(self.identity)
            if not self.has_lease:
                await self._handle_lease_end()
                return
            if error == ErrorCode.none:
                self._extend_lease(sent_s)
                await asyncio.sleep(TIMEOUTS.heartbeat)
            elif error == ErrorCode.rebalance_in_progress:
                await self._rejoin()
                return
            elif error in GROUP_RETRIABLE:
                await asyncio.sleep(RETRY_PAUSE_S)
            else:
                self._check_error(error)
                return

    def _check_error(self, error: ErrorCode) -> None:
        if error == ErrorCode.illegal_generation:
            self.abandon()
            self.identity = self.identity._replace(generation=-1)
        elif error in (ErrorCode.unknown_member_id, ErrorCode.fenced_instance_id):
            # A static member may also be fenced by its own earlier JoinGroup, if that arrived late.
            self.abandon()
            self.identity = Identity(instance_id=self.identity.instance_id)
        elif error not in GROUP_RETRIABLE | {ErrorCode.rebalance_in_progress, ErrorCode.member_id_required}:
            raise Violation(f"{self.identity} of {self.client.group_id} got {error.name}")

    async def _leave(self) -> None:
        """A static member sends no LeaveGroup, because it may come back soon."""
        if self.identity.member_id and self.identity.instance_id is None:
            await self.client.leave(self.identity.member_id)


class CooperativeMember(ClassicMember):
    """Keeps its partitions while it joins, then gives up those that it lost, and joins again."""

    protocol = "cooperative-sticky"

    def _assign_partitions(self, claims: Mapping[str, Claim]) -> dict[str, list[int]]:
        """Leaves out partitions of other members until their owners have given them up."""
        owners: dict[int, str] = {}
        for member, claim in sorted(claims.items(), key=lambda item: (item[1].generation, item[0])):
            owners |= dict.fromkeys(claim.partitions, member)
        return {
            member: [partition for partition in partitions if owners.get(partition, member) == member]
            for member, partitions in super()._assign_partitions(claims).items()
        }

    async def _accept_assignment(self) -> bool:
        revoked = [partition for partition in self.ownerships if partition not in self._assigned]
        self._assign([partition for partition in self._assigned if partition not in self.ownerships])
        await self._revoke(revoked)
        # It also rejoins for partitions that it lost after it claimed them: the leader kept those from the others.
        return any(partition not in self._assigned for partition in self._claim.partitions)

    async def _rejoin(self) -> None:
        """Keeps its partitions."""
