"""Commits that repeat: a consumer commits the same partitions again and again, and only the offsets are new.

A request that a member sends a second time shows its template: where in the request the offsets stand, and where in the
records. From then on a commit is a few operations on whole byte strings, however many partitions it has, and objects
for single offsets are made when somebody asks for them. Made one by one they were two thirds of a commit's time.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from ottla.core.coordination import Command
from ottla.core.groups.commands import OffsetCommit, PartitionError
from ottla.model.errors import ErrorCode
from ottla.protocol.byte_template import ByteTemplate
from ottla.protocol.group_records.packed_offsets import offsets_template
from ottla.protocol.group_records.records import OffsetCommitKey, OffsetCommitValue
from ottla.protocol.offset_commit_codec import OFFSET_FIELDS, read_commit_sender

TEMPLATES_MAX = 10_000

OffsetRecord = tuple[OffsetCommitKey, OffsetCommitValue]


class CommitTemplate:
    """`sample` is the body of a request whose offsets stand at `positions`, `command` what it asks for.

    `response` is the body of the answer where nothing is refused, which the machine says with `accepted` itself.
    """

    __slots__ = ("_records", "_request", "accepted", "command", "count", "response")

    def __init__(self, sample: bytes, positions: list[int], command: OffsetCommit, response: bytes) -> None:
        assert command.retention_ms is None, "the records of a template have no time of their own to expire"
        self.command = command
        self.response = response
        self.count = len(command.offsets)
        self.accepted = tuple(
            PartitionError(each.topic, each.partition, ErrorCode.none) for each in command.offsets
        )
        self._request = ByteTemplate(sample, positions, OFFSET_FIELDS)
        self._records = offsets_template(list(RepeatedOffsets(self, (0, 0) * self.count, 0).records()))

    def matches(self, body: bytes) -> bool:
        return self._request.matches(body)

    def read_commit(self, body: bytes) -> "RepeatedCommit":
        """The commit of a request that fits."""
        return RepeatedCommit(self, self._request.read(body))

    def packed_records(self, offsets: tuple[int, ...], now_ms: int) -> bytes:
        return self._records.fill(offsets, now_ms)


@dataclass(frozen=True, slots=True)
class RepeatedCommit(Command[tuple[PartitionError, ...]]):
    """`offsets` has an offset and a leader epoch for each partition."""

    template: CommitTemplate
    offsets: tuple[int, ...]

    def to_offset_commit(self) -> OffsetCommit:
        command, numbers = self.template.command, iter(self.offsets)
        offsets = (
            each._replace(offset=next(numbers), leader_epoch=next(numbers)) for each in command.offsets
        )
        return replace(command, offsets=tuple(offsets))


class RepeatedOffsets(NamedTuple):
    """What a repeated commit left, as it is kept until somebody asks for a single offset."""

    template: CommitTemplate
    offsets: tuple[int, ...]
    commit_timestamp: int

    def records(self) -> Iterator[OffsetRecord]:
        command, numbers = self.template.command, iter(self.offsets)
        for each in command.offsets:
            key = OffsetCommitKey(group=command.group_id, topic=each.topic, partition=each.partition)
            value = OffsetCommitValue(
                offset=next(numbers),
                leader_epoch=next(numbers),
                metadata=each.metadata or "",
                commit_timestamp=self.commit_timestamp,
                topic_id=each.topic_id,
            )
            yield key, value


class CommitTemplates:
    """The templates of the commits that repeat, by version and by what their requests open with: who sends them.

    They hold while topics and settings are what they were; then they are forgotten, and learned anew.
    """

    def __init__(self) -> None:
        self._templates: dict[tuple[int, bytes], CommitTemplate | None] = {}  # None: one commit was seen

    def find(self, body: bytes, version: int) -> CommitTemplate | None:
        sender = read_commit_sender(body, version)
        template = self._templates.get((version, sender)) if sender is not None else None
        return template if template is not None and template.matches(body) else None

    def is_repeated(self, body: bytes, version: int) -> bool:
        """Whether its sender has committed before; from now on it has."""
        sender = read_commit_sender(body, version)
        if sender is None:
            return False
        if (version, sender) in self._templates:
            return True
        if len(self._templates) >= TEMPLATES_MAX:  # the oldest: whoever still commits is soon here again
            del self._templates[next(iter(self._templates))]
        self._templates[version, sender] = None
        return False

    def add(self, body: bytes, version: int, template: CommitTemplate) -> None:
        sender = read_commit_sender(body, version)
        assert sender is not None, "a template is learned where a commit repeats"
        self._templates[version, sender] = template

    def clear(self) -> None:
        self._templates.clear()
