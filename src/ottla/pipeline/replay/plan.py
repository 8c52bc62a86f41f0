"""The plan of a replay: where it starts, and what nobody has any more. It is fixed at the first start.

A topic that was deleted and created again has several histories in its archive, each with offsets of its own. The
earlier ones are read first, one after another. Then comes the topic as the cluster has it. Offsets that it has deleted
are read from the archive, so the plan does not say where the archive ends and the topic begins: retention may move that
border at any time, and a record is the same on both sides of it.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from ottla.model.ids import TopicPartition
from ottla.pipeline.archive.histories import histories_in_order, history_of
from ottla.pipeline.archive.manifest import DataFile, Summary, topic_of
from ottla.pipeline.archive.ranges import Span, holes, spans_by_partition
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.spark.offsets import OffsetRange, Offsets, from_json, limited, to_json


class Wanted(NamedTuple):
    """Offsets of raw records, without `end`. If `since_ms` is set, only of records with this time or a later one."""

    start: int
    end: int
    since_ms: int | None = None


# of raw records, by topic and partition
Ranges = Mapping[str, Mapping[int, Sequence[Wanted]]]


class Log(NamedTuple):
    """A topic as the cluster has it, by partition. `start` is where the replay would start without an archive."""

    topic_id: str | None
    earliest: Mapping[int, int]
    start: Mapping[int, int]
    end: Mapping[int, int]


class Held(NamedTuple):
    """The archive of a topic.

    `firsts` are the first archived offsets with the replay's starting time or a later one, by history and partition.
    None if the replay starts at the beginning.
    """

    path: str
    archived: Summary
    firsts: Offsets | None = None


@dataclass(frozen=True)
class Plan:
    """`start` has the partitions of the topics that exist. Their first records may be in the archive alone.

    `paths` are those of the topics' archives, `histories` what the topics that exist are called there. The topics of
    `earlier` and `missing` are histories.
    """

    start: Offsets
    # of the topics that exist, if the cluster has ids
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    paths: Mapping[str, str] = field(default_factory=dict)
    histories: Mapping[str, str] = field(default_factory=dict)
    # in the order in which they are read
    earlier: tuple[OffsetRange, ...] = ()
    # offsets that neither the topic nor the archive has
    missing: tuple[OffsetRange, ...] = ()
    time_ms: int | None = None

    def to_json(self) -> str:
        return json.dumps(asdict(self) | {"start": to_json(self.start)})

    @classmethod
    def from_json(cls, text: str) -> "Plan":
        content = json.loads(text)
        content["start"] = from_json(content["start"])
        for name in ("earlier", "missing"):
            content[name] = tuple(OffsetRange(*one) for one in content[name])
        return cls(**content)


def make_plan(logs: Mapping[str, Log], held: Mapping[str, Held], time_ms: int | None) -> Plan:
    """`logs` are the topics that exist, `held` those with an archive."""
    start: Offsets = {}
    earlier: list[OffsetRange] = []
    missing: list[OffsetRange] = []
    histories = {
        topic: history_of(held[topic].archived, topic, log.topic_id)
        for topic, log in logs.items()
        if topic in held
    }
    for topic, archive in sorted(held.items()):
        for history in histories_in_order(archive.archived, topic):
            if history != histories.get(topic):
                _plan_earlier(history, archive, earlier, missing)
    for topic, log in sorted(logs.items()):
        archive = held.get(topic, Held("", Summary(), None if time_ms is None else {}))
        _plan_current(topic, histories.get(topic, topic), archive, log, start, missing)
    paths = {topic: archive.path for topic, archive in held.items()}
    topic_ids = {topic: log.topic_id for topic, log in logs.items() if log.topic_id is not None}
    return Plan(start, topic_ids, paths, histories, tuple(earlier), tuple(missing), time_ms)


def _plan_earlier(
    history: str, archive: Held, earlier: list[OffsetRange], missing: list[OffsetRange]
) -> None:
    """Adds what the archive has of a history that its topic no longer has."""
    for at, spans in spans_by_partition(archive.archived.ranges).items():
        first = _first_wanted(at, spans, archive)
        if at.topic == history and first is not None:
            end = max(span.end for span in spans)
            earlier.append(OffsetRange(*at, first, end))
            missing += _missing(at, spans, end, first, archive)


def _plan_current(
    topic: str, history: str, archive: Held, log: Log, start: Offsets, missing: list[OffsetRange]
) -> None:
    """Adds the start of each partition of a topic that exists, and what it has deleted that nobody else has."""
    _check_length(topic, history, archive, log)
    spans = spans_by_partition(archive.archived.ranges)
    for partition, earliest in sorted(log.earliest.items()):
        at = TopicPartition(history, partition)
        deleted = [
            Span(one.start, min(one.end, earliest)) for one in spans.get(at, ()) if one.start < earliest
        ]
        first = _first_wanted(at, deleted, archive)
        begin = log.start[partition] if first is None or first >= earliest else first
        start[TopicPartition(topic, partition)] = begin
        missing += _missing(at, deleted, earliest, begin, archive)


def _first_wanted(at: TopicPartition, spans: Sequence[Span], archive: Held) -> int | None:
    """The first archived offset that the replay reads; None if it reads none."""
    if archive.firsts is not None:
        return archive.firsts.get(at)
    return min((span.start for span in spans), default=None)


def _missing(
    at: TopicPartition, spans: Sequence[Span], end: int, first: int, archive: Held
) -> Iterator[OffsetRange]:
    """The holes before `end`.

    If the replay starts at a time: from the one just before `first` on. Earlier ones are before older records.
    """
    since = 0 if archive.firsts is None else first
    return (OffsetRange(*at, *hole) for hole in holes(spans, 0, end) if hole.end >= since)


def _check_length(topic: str, history: str, archive: Held, log: Log) -> None:
    for at, archived_end in archive.archived.ends.items():
        if at.topic == history and archived_end > (end := log.end.get(at.partition, 0)):
            raise PipelineError(
                f"{TopicPartition(topic, at.partition)} is archived up to offset {archived_end}, but ends at {end}: "
                "the topic lost records. Or it was created again, and the archive does not have its id.",
                "The replay cannot tell which of them belong together. Load the archive into another topic (a source "
                'with kind = "archive"), and replay that one.',
            )


def firsts_since(
    files: Iterable[DataFile], time_ms: int, read_firsts: Callable[[DataFile], Mapping[int, int]]
) -> Offsets:
    """The first archived offsets at or after the time, by history and partition.

    A file has the records of one hour, so only those of the time's hour are read: `read_firsts` returns the first
    offset of each partition in such a file that is late enough.
    """
    time = datetime.fromtimestamp(time_ms / 1000, UTC)
    hour = (time.date().isoformat(), time.hour)
    firsts: Offsets = {}
    for file in files:
        if (file.hour.date, file.hour.hour) < hour:
            continue
        is_later = (file.hour.date, file.hour.hour) > hour
        found = {at: part.first for at, part in file.slices.items()} if is_later else read_firsts(file)
        for partition, offset in found.items():
            at = TopicPartition(file.topic, partition)
            firsts[at] = min(offset, firsts.get(at, offset))
    return firsts


def next_earlier(earlier: Sequence[OffsetRange], done: Offsets, rows_max: int | None) -> Offsets:
    """Up to where the next batch reads the earlier histories; `done` when all are read.

    Of each topic one history at a time, so that records are written in the order in which they came.
    """
    active: dict[str, str] = {}
    for one in earlier:
        if done[one.at] < one.end:
            active.setdefault(topic_of(one.topic), one.topic)
    end = {one.at: one.end if one.topic in active.values() else done[one.at] for one in earlier}
    return end if rows_max is None else limited(done, end, rows_max)


def split_range(
    wanted: OffsetRange, earliest: int, archived: Iterable[Span], missing: Iterable[Span]
) -> tuple[OffsetRange, OffsetRange, list[Span]]:
    """What of a range the archive and the topic give, and which of its offsets are lost.

    `earliest` is the topic's earliest offset now, `missing` are the offsets that were lost when the replay began.
    """
    border = min(max(earliest, wanted.start), wanted.end)
    lost = holes([*archived, *missing], wanted.start, border)
    return wanted._replace(end=border), wanted._replace(start=border), lost


def compared_ranges(plan: Plan, ends: Mapping[str, Mapping[int, int]]) -> Ranges:
    """The offsets that the replay has read up to `ends`, by topic and partition."""
    missing = spans_by_partition(plan.missing)
    several = {topic_of(one.topic) for one in plan.earlier}
    read = [(topic_of(one.topic), one) for one in plan.earlier]
    for at, first in sorted(plan.start.items()):
        history = plan.histories.get(at.topic, at.topic)
        end = ends.get(at.topic, {}).get(at.partition, first)
        read.append((at.topic, OffsetRange(history, at.partition, first, end)))
    ranges: dict[str, dict[int, list[Wanted]]] = {}
    for topic, one in read:
        parts = holes(missing.get(one.at, ()), one.start, one.end)
        since_ms = plan.time_ms if topic in several else None
        found = ranges.setdefault(topic, {}).setdefault(one.partition, [])
        found += [Wanted(*part, since_ms) for part in parts]
    return ranges


def describe_missing(plan: Plan) -> Iterator[str]:
    """The lines that a replay prints before it starts."""
    for one in plan.missing:
        span = Span(one.start, one.end)
        yield (
            f"Not replayed: {one.at} offset {span}, {one.size:,} in all. The topic has deleted them, and no archive "
            "has them."
        )
