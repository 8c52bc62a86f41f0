"""Fast path for a consumer that commits the same partitions again and again, with new offsets.

From the second commit of a member the broker makes a template: the positions of the offsets in the request and in the
records. Further commits are then a few operations on whole byte strings, for any number of partitions. Objects for
single offsets are made only when they are needed: making them took two thirds of the time of a commit.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from ottla.core.coordination import WritingCommand
from ottla.core.groups.commands import OffsetCommit, PartitionError
from ottla.model.errors import ErrorCode
from ottla.protocol.byte_template import ByteTemplate
from ottla.protocol.group_records.packed_offsets import offsets_template
from ottla.protocol.group_records.records import OffsetCommitKey, OffsetCommitValue
from ottla.protocol.offset_commit_codec import OFFSET_FIELDS, read_commit_sender

TEMPLATES_MAX = 10_000

OffsetRecord = tuple[OffsetCommitKey, OffsetCommitValue]


class CommitTemplate:
    """`sample` is the body of a request with its offsets at `positions`; `command` is the decoded request.

    `response` is the body of the response if all offsets are accepted; the machine then replies with the object
    `accepted`.
    """

    __slots__ = ("_records", "_request", "accepted", "command", "count", "response")

    def __init__(self, sample: bytes, positions: list[int], command: OffsetCommit, response: bytes) -> None:
        assert command.retention_ms is None, "a template cannot have records with their own expiry time"
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
        """The commit of a request that matches."""
        return RepeatedCommit(self, self._request.read(body))

    def packed_records(self, offsets: tuple[int, ...], now_ms: int) -> bytes:
        return self._records.fill(offsets, now_ms)


@dataclass(frozen=True, slots=True)
class RepeatedCommit(WritingCommand[tuple[PartitionError, ...]]):
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
    """The offsets of a repeated commit, kept in this form until a single offset is needed."""

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
    """The templates of repeated commits, by request version and sender (the first fields of the request).

    They are valid until topics or settings change; then they are cleared and made again.
    """

    def __init__(self) -> None:
        self._templates: dict[tuple[int, bytes], CommitTemplate | None] = {}  # None after the first commit

    def find(self, body: bytes, version: int) -> CommitTemplate | None:
        sender = read_commit_sender(body, version)
        template = self._templates.get((version, sender)) if sender is not None else None
        return template if template is not None and template.matches(body) else None

    def is_repeated(self, body: bytes, version: int) -> bool:
        """Whether the sender has committed before. Remembers the sender."""
        sender = read_commit_sender(body, version)
        if sender is None:
            return False
        if (version, sender) in self._templates:
            return True
        if (
            len(self._templates) >= TEMPLATES_MAX
        ):  # evict the oldest: if its sender is active, it comes back soon
            del self._templates[next(iter(self._templates))]
        self._templates[version, sender] = None
        return False

    def add(self, body: bytes, version: int, template: CommitTemplate) -> None:
        sender = read_commit_sender(body, version)
        assert sender is not None, "a template is made only for a repeated commit"
        self._templates[version, sender] = template

    def clear(self) -> None:
        self._templates.clear()
