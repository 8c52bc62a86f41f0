"""Members of the classic protocol, as Kafka's consumers are: eager ones, and cooperative ones (KIP-429)."""

import asyncio
from collections.abc import Mapping

from ottla.model.errors import ErrorCode
from ottla.sim.group_client import Claim, Identity
from ottla.sim.group_members import AGAIN, TIMEOUTS, GroupMember
from ottla.sim.history import Violation
from ottla.sim.workload import RETRY_PAUSE_S


class ClassicMember(GroupMember):
    """Eager: it gives up everything before it joins again."""

    protocol = "range"

    async def _coordinate(self) -> None:
        await self._find_coordinator()
        while True:
            if not await self._join():
                await asyncio.sleep(RETRY_PAUSE_S)
            elif not await self._take():
                await self._beat()

    async def _join(self) -> bool:
        """Joins, and is told in `_assigned` what it is to own."""
        if not self.has_lease:
            self.abandon()
        self._claim = Claim(self.who.generation, tuple(self.tenures))
        error, joined = await self.client.join(self.who, TIMEOUTS, self.protocol, self._claim)
        if joined is not None and error in (ErrorCode.none, ErrorCode.member_id_required):
            self.who = Identity(joined.member_id, joined.generation_id, self.who.instance_id)
        if error != ErrorCode.none or joined is None:
            self._judge(error)
            return error == ErrorCode.member_id_required and await self._join()
        leads = joined.leader == joined.member_id and not joined.skip_assignment
        claims = self.client.claims(joined) if leads else {}
        sent_s = self._now_s()
        error, self._assigned = await self.client.sync(
            self.who, self.protocol, self._share_out(claims) if leads else {}
        )
        if error != ErrorCode.none:
            self._judge(error)
            return False
        if not self.has_lease:
            self.abandon()
        return self._extend_lease(sent_s)

    def _share_out(self, claims: Mapping[str, Claim]) -> dict[str, list[int]]:
        """What the leader assigns: consecutive partitions to each member, in the order of their ids."""
        members, partitions = sorted(claims), self._topic.partitions
        return {
            member: list(range(index * partitions // len(members), (index + 1) * partitions // len(members)))
            for index, member in enumerate(members)
        }

    async def _take(self) -> bool:
        """Owns what it is assigned. Returns whether it has to join again at once."""
        self._assign(list(self._assigned))
        return False

    async def _rejoin(self) -> None:
        """The others are about to join again, and so is it."""
        await self._revoke(list(self.tenures))

    async def _beat(self) -> None:
        """Until it has to join again."""
        while True:
            sent_s = self._now_s()
            error = await self.client.heartbeat(self.who)
            if not self.has_lease:
                await self._lapse()
                return
            if error == ErrorCode.none:
                self._extend_lease(sent_s)
                await asyncio.sleep(TIMEOUTS.heartbeat)
            elif error == ErrorCode.rebalance_in_progress:
                await self._rejoin()
                return
            elif error in AGAIN:
                await asyncio.sleep(RETRY_PAUSE_S)
            else:
                self._judge(error)
                return

    def _judge(self, error: ErrorCode) -> None:
        if error == ErrorCode.illegal_generation:
            self.abandon()
            self.who = self.who._replace(generation=-1)
        elif error in (ErrorCode.unknown_member_id, ErrorCode.fenced_instance_id):
            # A static member is fenced also by its own JoinGroup, where that was under way for long.
            self.abandon()
            self.who = Identity(instance_id=self.who.instance_id)
        elif error not in AGAIN | {ErrorCode.rebalance_in_progress, ErrorCode.member_id_required}:
            raise Violation(f"{self.who} of {self.client.group_id} was told {error.name}")

    async def _leave(self) -> None:
        """A static one goes without a word, as it may be back in a moment."""
        if self.who.member_id and self.who.instance_id is None:
            await self.client.leave(self.who.member_id)


class CooperativeMember(ClassicMember):
    """It goes on with what it owns while it joins, then gives up what it is not assigned any more, and joins again."""

    protocol = "cooperative-sticky"

    def _share_out(self, claims: Mapping[str, Claim]) -> dict[str, list[int]]:
        """What is to go to another member is left out, until its owner has given it up."""
        owners: dict[int, str] = {}
        for member, claim in sorted(claims.items(), key=lambda item: (item[1].generation, item[0])):
            owners |= dict.fromkeys(claim.partitions, member)
        return {
            member: [partition for partition in partitions if owners.get(partition, member) == member]
            for member, partitions in super()._share_out(claims).items()
        }

    async def _take(self) -> bool:
        gone = [partition for partition in self.tenures if partition not in self._assigned]
        self._assign([partition for partition in self._assigned if partition not in self.tenures])
        await self._revoke(gone)
        # Also what it lost since it claimed it was kept from the others.
        return any(partition not in self._assigned for partition in self._claim.partitions)

    async def _rejoin(self) -> None:
        """It keeps what it owns."""
