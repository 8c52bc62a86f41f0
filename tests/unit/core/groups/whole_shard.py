"""A whole shard for tests: several groups, of any type, in one log with their offsets and transactions."""

from dataclasses import replace
from typing import Any

from tests.unit.core.groups.consumer.consumer_groups import Groups, Member, Topics
from tests.unit.core.groups.transactional_shell import TransactionalShell, compacted

from ottla.core.coordination import Command
from ottla.core.groups.commands import CommittedOffset, OffsetFetch
from ottla.core.groups.group import Group
from ottla.core.groups.settings import GroupSettings
from ottla.core.groups.shard import GroupShard
from ottla.model.errors import ErrorCode, KafkaError

FENCING = (
    ErrorCode.unknown_member_id,
    ErrorCode.fenced_member_epoch,
    ErrorCode.fenced_instance_id,
    ErrorCode.group_id_not_found,
    ErrorCode.unreleased_instance_id,
)


class ShardShell(TransactionalShell):
    def __init__(self, topics: Topics, **settings: Any) -> None:
        self.topics = topics
        self.settings = GroupSettings(**settings)
        super().__init__(self.fresh())
        self.restart()

    def fresh(self) -> GroupShard:
        return GroupShard(self.settings, self.topics)

    def restart(self) -> None:
        self.reload(self.fresh())

    def changed_topics(self) -> None:
        self._perform(self.machine.on_topics_changed(self.now_ms))
        self.machine.validate()

    def clean_log(self, until: int) -> None:
        """Applies the log cleaner to all but the last segment."""
        self.log = [*compacted(self.log[:until]), *self.log[until:]]

    def find(self, group_id: str) -> Group | None:
        group: Group | None = self.machine.state.groups.get(group_id)
        return group

    def error_of(self, command: Command[Any]) -> ErrorCode:
        """The response to a command that has one at once."""
        response = self.replies[self.decide(command)]
        return response.code if isinstance(response, KafkaError) else ErrorCode.none

    def offsets_of(self, group_id: str) -> tuple[CommittedOffset, ...]:
        fetched: tuple[CommittedOffset, ...] = self.ask(OffsetFetch(group_id=group_id, partitions=None))
        return fetched


class GroupOfShard(Groups):
    """One group of the shard, with the interface of a shell: all commands go to this group."""

    def __init__(self, shell: ShardShell, group_id: str) -> None:
        self.shell = shell
        self.group_id = group_id
        self.topics = shell.topics
        self.replies = shell.replies
        self.made_up = 0

    def decide(self, command: Any) -> int:
        return self.shell.decide(replace(command, group_id=self.group_id))

    @property
    def members(self) -> dict[str, Any]:
        group: Any = self.shell.find(self.group_id)
        return {} if group is None else group.members


class ModernConsumer(Member):
    """A member of the consumer protocol that rejoins when it is fenced."""

    def act(self) -> None:
        try:
            if self.epoch > 0:
                self.report()
            else:
                self.join()
        except KafkaError as rejection:
            if rejection.code not in FENCING:
                raise
            self.epoch = 0
            self.owned.clear()
            self.assigned.clear()
