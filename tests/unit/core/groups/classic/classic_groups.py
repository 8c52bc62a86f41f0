"""Helpers for tests of classic groups: a shard with only the classic machine, and its members' requests."""

import itertools
import uuid
from collections.abc import Iterable
from typing import Any

from tests.unit.core.groups.shell import FakeShell

from ottla.core.groups.classic.group import ClassicGroup
from ottla.core.groups.classic.machine import ClassicMachine
from ottla.core.groups.commands import (
    Client,
    Heartbeat,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    LeavingMember,
    MemberLeft,
    SyncGroup,
)
from ottla.core.groups.settings import GroupSettings
from ottla.core.groups.state import GroupsState, TopicInfo
from ottla.model.errors import ErrorCode, KafkaError

GROUP = "orders"
SESSION_MS = 10_000
REBALANCE_MS = 60_000
DELAY_MS = 3000
SETTINGS = GroupSettings(initial_rebalance_delay_ms=DELAY_MS)
RANGE = (("range", b"metadata"),)


class NoTopics:
    version = 0

    def find(self, name: str) -> TopicInfo | None:
        return None

    def find_by_id(self, topic_id: uuid.UUID) -> TopicInfo | None:
        return None

    def names(self) -> Iterable[str]:
        return ()


def machine(settings: GroupSettings = SETTINGS) -> ClassicMachine:
    return ClassicMachine(GroupsState(settings, NoTopics()))


class Shell(FakeShell):
    """Sends requests of members. Returns a waiter if the response may come later, else the response."""

    def __init__(self, settings: GroupSettings = SETTINGS) -> None:
        super().__init__(machine(settings))
        self.settings = settings
        self._made_up = itertools.count(1)

    def group(self, group_id: str = GROUP) -> ClassicGroup:
        group = self.machine._state.groups[group_id]
        assert isinstance(group, ClassicGroup)
        return group

    @property
    def state(self) -> str:
        return self.group().state.value

    def restart(self, settings: GroupSettings | None = None) -> None:
        self.reload(machine(settings or self.settings))

    def join(self, member_id: str = "", new_id: str = "", **fields: Any) -> int:
        values: dict[str, Any] = {
            "group_id": GROUP,
            "member_id": member_id,
            "new_member_id": new_id or f"made-up-{next(self._made_up)}",
            "client": Client("client", "/127.0.0.1"),
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
            "protocol_type": "consumer",
            "protocols": RANGE,
        } | fields
        return self.decide(JoinGroup(**values))

    def joined(self, waiter: int) -> JoinGroupResponse:
        response = self.replies[waiter]
        assert isinstance(response, JoinGroupResponse), response
        return response

    def error(self, waiter: int) -> ErrorCode:
        response = self.replies[waiter]
        assert isinstance(response, KafkaError), response
        return response.code

    def sync(self, member_id: str, generation_id: int | None = None, **fields: Any) -> int:
        if generation_id is None:
            generation_id = self.group().generation_id
        return self.decide(
            SyncGroup(group_id=GROUP, member_id=member_id, generation_id=generation_id, **fields)
        )

    def heartbeat(self, member_id: str, generation_id: int | None = None, **fields: Any) -> ErrorCode:
        if generation_id is None:
            generation_id = self.group().generation_id
        command = Heartbeat(group_id=GROUP, member_id=member_id, generation_id=generation_id, **fields)
        response = self.replies[self.decide(command)]
        return ErrorCode.none if response is None else response.code

    def leave(self, *members: str | LeavingMember) -> tuple[MemberLeft, ...]:
        leaving = tuple(LeavingMember(m) if isinstance(m, str) else m for m in members)
        left: tuple[MemberLeft, ...] = self.ask(LeaveGroup(group_id=GROUP, members=leaving))
        return left

    def stable_group(self, *member_ids: str, **fields: Any) -> None:
        """Members with these ids, the first the leader, each assigned its own id as bytes."""
        waiters = [self.join(new_id=member_id, **fields) for member_id in member_ids]
        self.advance(2 * DELAY_MS)
        assert all(self.joined(waiter).error_code is ErrorCode.none for waiter in waiters)
        self.sync_all(*member_ids)

    def sync_all(self, *member_ids: str) -> None:
        assignments = tuple((member_id, member_id.encode()) for member_id in member_ids)
        for member_id in member_ids:
            is_leader = self.group().leader_id == member_id
            self.sync(member_id, assignments=assignments if is_leader else ())
        assert self.state == "Stable"
