"""A group whose members come, leave and die; some are static, and come back in the place of the dead."""

import asyncio
from collections.abc import Callable
from random import Random

from ottla.sim.group_history import GroupHistory
from ottla.sim.group_members import GroupMember

MEMBERS_MAX = 3
INSTANCE_IDS = ("one", "two")


class GroupUnderTest:
    def __init__(
        self, history: GroupHistory, random: Random, new_member: Callable[[str | None], GroupMember]
    ) -> None:
        self._random = random
        self._new_member = new_member
        self.history = history
        self.members: dict[GroupMember, asyncio.Task[None]] = {}
        self._leaving: dict[GroupMember, asyncio.Task[None]] = {}

    def start_member(self, tasks: asyncio.TaskGroup) -> None:
        # Who is about to leave still believes in what it owns: nobody may take its place before it is gone.
        self._leaving = {member: task for member, task in self._leaving.items() if not task.done()}
        used = [member.who.instance_id for member in (*self.members, *self._leaving)]
        free = [instance_id for instance_id in INSTANCE_IDS if instance_id not in used]
        member = self._new_member(self._random.choice((None, *free)))
        self.members[member] = tasks.create_task(member.run())

    async def churn(self, tasks: asyncio.TaskGroup) -> None:
        """Members come and go, until cancelled."""
        while True:
            if len(self.members) < self._random.randint(1, MEMBERS_MAX):
                self.start_member(tasks)
            elif self._random.random() < 0.5:
                member = self._random.choice(list(self.members))
                task = self.members.pop(member)
                if self._random.random() < 0.5:
                    member.leave()
                    self._leaving[member] = task
                else:
                    task.cancel()
                    member.die()
            await asyncio.sleep(self._random.uniform(1.0, 12.0))

    async def leave(self) -> None:
        for member in self.members:
            member.leave()
        await asyncio.wait(list(self.members.values()))
        self.members.clear()
