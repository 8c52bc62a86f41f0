"""The plan of a reload: which records it loads. It is fixed at the first start, so a second run adds nothing.

Positions are the archived offsets of each partition. The records between two offsets stay the same when a merge puts
them into other files, so a batch that runs again reads the same rows.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from ottla.pipeline.archive.manifest import Archived, DataFile, Summary, topic_of
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.ingest.reload.settings import ReloadSettings
from ottla.pipeline.spark.offsets import OffsetRange, Offsets, from_json, to_json


@dataclass(frozen=True)
class Times:
    """Records from `from_ms` on and before `to_ms`; None for no limit."""

    from_ms: int | None = None
    to_ms: int | None = None


@dataclass(frozen=True)
class Plan:
    """The archive, the offsets at which loading begins and ends, and the times of the wanted records.

    `settings` is the source's table at the first start, without the settings that only change the speed.
    """

    path: str
    start: Offsets
    end: Offsets
    times: Times
    settings: Mapping[str, Any]

    def to_json(self) -> str:
        content = {"path": self.path, "start": to_json(self.start), "end": to_json(self.end)}
        return json.dumps(content | {"times": asdict(self.times), "chosen": dict(self.settings)})

    @classmethod
    def from_json(cls, text: str) -> "Plan":
        content = json.loads(text)
        start, end = from_json(content["start"]), from_json(content["end"])
        return cls(content["path"], start, end, Times(**content["times"]), content["chosen"])


class Task(NamedTuple):
    """What one Spark task reads: the offsets of a range, from groups of files whose offsets overlap."""

    wanted: OffsetRange
    times: Times
    groups: list[list[str]]


def make_plan(settings: ReloadSettings, path: str, archived: Summary, where: str) -> Plan:
    """`where` names the stage's table in errors."""
    topics = settings.topics or tuple(archived.topics)
    unknown = sorted(set(topics) - set(archived.topics))
    if unknown:
        raise PipelineError(
            f"{where}: the archive {path} has no topic {unknown[0]}.",
            f"It has: {', '.join(archived.topics) or 'none yet'}.",
        )
    times = Times(
        _parse_time_ms(settings.time_from, f"{where}: `time_from`"),
        _parse_time_ms(settings.time_to, f"{where}: `time_to`"),
    )
    start, end = {}, {}
    for at, last in archived.ends.items():
        if topic_of(at.topic) in topics:
            first = max(archived.starts[at], settings.offset_from or 0)
            limit = last if settings.offset_to is None else min(last, settings.offset_to)
            start[at], end[at] = min(first, limit), limit
    return Plan(path, start, end, times, _deciding_settings(settings))


def _deciding_settings(settings: ReloadSettings) -> dict[str, Any]:
    table = asdict(settings)
    del table["max_offsets_per_batch"]
    return table | {"topics": list(settings.topics)}


def check_unchanged(plan: Plan, settings: ReloadSettings, where: str) -> None:
    now = _deciding_settings(settings)
    changed = [name for name, value in now.items() if plan.settings.get(name) != value]
    if changed:
        raise PipelineError(
            f"{where}: `{changed[0]}` was {plan.settings.get(changed[0])!r} when this load began, and is now "
            f"{now[changed[0]]!r}.",
            "Set it back. To load other records, add a source with a name of its own.",
        )


def _parse_time_ms(text: str | None, what: str) -> int | None:
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise PipelineError(f"{what} is {text!r}.", "Give a time such as 2026-01-31T12:00:00Z.") from None
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)


def files_for(wanted: OffsetRange, archived: Archived) -> list[DataFile]:
    """The files that may have records of a range, sorted by their first offset in its partition."""
    found = [
        file
        for file in archived.files.values()
        if file.topic == wanted.topic
        and (one := file.slices.get(wanted.partition)) is not None
        and one.first < wanted.end
        and one.last >= wanted.start
    ]
    return sorted(found, key=lambda file: (file.slices[wanted.partition].first, file.path))


def group_overlapping(files: Sequence[DataFile], partition: int) -> list[list[DataFile]]:
    """Files whose ranges of offsets overlap are in one group: they are read together, and their records sorted."""
    groups: list[list[DataFile]] = []
    last = -1
    for file in files:
        one = file.slices[partition]
        if groups and one.first <= last:
            groups[-1].append(file)
        else:
            groups.append([file])
        last = max(last, one.last)
    return groups


def stream_options(plan: Plan, settings: ReloadSettings, credentials: Mapping[str, str]) -> dict[str, str]:
    """The options of `format("ottla-archive")`."""
    limit = {"maxOffsetsPerTrigger": str(settings.max_offsets_per_batch)}
    return {"plan": plan.to_json(), **limit, **credentials}


def partitions_needed(plan: Plan) -> dict[str, int]:
    """How many partitions a topic needs so that every record can keep its partition."""
    needed: dict[str, int] = {}
    for at in _ranges(plan):
        topic = topic_of(at.topic)
        needed[topic] = max(needed.get(topic, 0), at.partition + 1)
    return needed


def _ranges(plan: Plan) -> Iterable[OffsetRange]:
    return [
        OffsetRange(*at, plan.start[at], end) for at, end in sorted(plan.end.items()) if end > plan.start[at]
    ]
