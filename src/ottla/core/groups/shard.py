"""One shard of the group coordinator: the groups that hash to one partition of `__consumer_offsets`.

The shard only dispatches commands and records to its machines, one per group type and one for offsets, which share its
state.
"""

from collections.abc import Callable
from typing import Any

from ottla.core.coordination import Command, Waiter
from ottla.core.groups.classic.machine import ClassicMachine
from ottla.core.groups.commands import ListGroups
from ottla.core.groups.consumer.machine import ConsumerMachine
from ottla.core.groups.group import GroupDecision
from ottla.core.groups.migration.machine import MigrationMachine
from ottla.core.groups.offsets.machine import OffsetsMachine
from ottla.core.groups.settings import GroupSettings
from ottla.core.groups.state import ClusterTopics, GroupsState
from ottla.model.ids import NO_PRODUCER_ID
from ottla.protocol.group_records.records import GroupKey, GroupMetadataKey, GroupValue, OffsetCommitKey

Decide = Callable[[Any, Any, Waiter, GroupDecision, int], None]


class GroupShard:
    def __init__(self, settings: GroupSettings, topics: ClusterTopics) -> None:
        self.state = GroupsState(settings, topics)
        self.classic = ClassicMachine(self.state)
        self.consumer = ConsumerMachine(self.state)
        self.offsets = OffsetsMachine(self.state)
        self.migration = MigrationMachine(self.state, self.classic.rebalancer, self.consumer.rebalancer)
        self.classic.migration = self.consumer.migration = self.migration
        self._routes: dict[type[Command[Any]], tuple[Any, Decide]] = {ListGroups: (self, GroupShard._list)}
        for machine in (*self._machines(), self.migration):
            decisions: dict[type[Command[Any]], Decide] = machine.DECIDE
            for command, decide in decisions.items():
                assert command not in self._routes, f"{command.__name__} has two machines"
                self._routes[command] = (machine, decide)

    def _machines(self) -> tuple[Any, ...]:
        return (self.classic, self.consumer, self.offsets)

    def decide(self, command: Command[Any], waiter: Waiter, now_ms: int) -> GroupDecision:
        decision = GroupDecision(self.replay)
        machine, decide = self._routes[type(command)]
        decide(machine, command, waiter, decision, now_ms)
        return decision

    def replay(self, key: GroupKey, value: GroupValue | None, producer_id: int = NO_PRODUCER_ID) -> None:
        if isinstance(key, OffsetCommitKey):
            self.offsets.replay(key, value, producer_id)
        elif isinstance(key, GroupMetadataKey):
            self.classic.replay(key, value)
        else:
            self.consumer.replay(key, value)

    def replay_marker(self, producer_id: int, committed: bool) -> None:
        self.offsets.replay_marker(producer_id, committed)

    def on_loaded(self, now_ms: int) -> GroupDecision:
        decision = GroupDecision(self.replay)
        for machine in self._machines():
            machine.on_loaded(decision, now_ms)
        return decision

    def on_topics_changed(self, now_ms: int) -> GroupDecision:
        """`state.topics` has changed."""
        decision = GroupDecision(self.replay)
        self.consumer.on_topics_changed(decision, now_ms)
        return decision

    def durable_state(self) -> dict[str, Any]:
        """The state that a shard rebuilt from the log must have too, in comparable form."""
        return {
            "classic": self.classic.durable_state(),
            "consumer": self.consumer.durable_state(),
            "offsets": self.offsets.durable_state(),
        }

    def validate(self) -> None:
        for machine in self._machines():
            machine.validate()

    def _list(self, command: ListGroups, waiter: Waiter, decision: GroupDecision, now_ms: int) -> None:
        listed = (group.as_listed_group() for group in self.state.groups.values())
        decision.reply(
            waiter,
            tuple(
                group
                for group in listed
                if (not command.states or group.state.lower() in command.states)
                and (not command.types or group.group_type.lower() in command.types)
            ),
        )
