"""What a reload will load, frozen when it first starts, so that a second run adds nothing.

Positions are the archived offsets of each partition. Which records lie between two of them does not change, whatever
files a merge has put them into: a batch that runs again reads the same rows.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from ottla.pipeline.archive.manifest import Archived, DataFile
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.ingest.reload.settings import ReloadSettings
from ottla.pipeline.spark.offsets import OffsetRange, Offsets, from_json, to_json


@dataclass(frozen=True)
class Times:
    """Records from `from_ms` up to and without `to_ms`; None is without limit."""

    from_ms: int | None = None
    to_ms: int | None = None


@dataclass(frozen=True)
class Plan:
    """The archive, the offsets at which loading begins and ends, and which times are wanted."""

    path: str
    start: Offsets
    end: Offsets
    times: Times
    # the table as it was, without what only says how fast
    chosen: Mapping[str, Any]

    def to_json(self) -> str:
        content = {"path": self.path, "start": to_json(self.start), "end": to_json(self.end)}
        return json.dumps(content | {"times": asdict(self.times), "chosen": dict(self.chosen)})

    @classmethod
    def from_json(cls, text: str) -> "Plan":
        content = json.loads(text)
        start, end = from_json(content["start"]), from_json(content["end"])
        return cls(content["path"], start, end, Times(**content["times"]), content["chosen"])


def make_plan(settings: ReloadSettings, path: str, archived: Archived, where: str) -> Plan:
    """`where` is the stage's table, for errors."""
    topics = settings.topics or tuple(archived.topics)
    unknown = sorted(set(topics) - set(archived.topics))
    if unknown:
        raise PipelineError(
            f"{where}: the archive {path} has no topic {unknown[0]}.",
            f"It has: {', '.join(archived.topics) or 'none yet'}.",
        )
    times = Times(*(time_ms(text, f"{where}: `{name}`") for name, text in named_times(settings)))
    start, end = {}, {}
    for at, last in archived.ends.items():
        if at.topic in topics:
            first = max(archived.starts[at], settings.offset_from or 0)
            limit = last if settings.offset_to is None else min(last, settings.offset_to)
            start[at], end[at] = min(first, limit), limit
    return Plan(path, start, end, times, chosen(settings))


def chosen(settings: ReloadSettings) -> dict[str, Any]:
    table = asdict(settings)
    del table["max_offsets_per_batch"]
    return table | {"topics": list(settings.topics)}


def check_unchanged(plan: Plan, settings: ReloadSettings, where: str) -> None:
    now = chosen(settings)
    changed = [name for name, value in now.items() if plan.chosen.get(name) != value]
    if changed:
        raise PipelineError(
            f"{where}: `{changed[0]}` was {plan.chosen.get(changed[0])!r} when this load began, and is now "
            f"{now[changed[0]]!r}.",
            "Set it back. To load other records, add a source with a name of its own.",
        )


def named_times(settings: ReloadSettings) -> tuple[tuple[str, str | None], ...]:
    return ("time_from", settings.time_from), ("time_to", settings.time_to)


def time_ms(text: str | None, what: str) -> int | None:
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise PipelineError(f"{what} is {text!r}.", "Give a time such as 2026-01-31T12:00:00Z.") from None
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)


def files_for(wanted: OffsetRange, archived: Archived) -> list[DataFile]:
    """The files that may hold records of a range, by their first offset of that partition."""
    found = [
        file
        for file in archived.files.values()
        if file.topic == wanted.topic
        and (one := file.slices.get(wanted.partition)) is not None
        and one.first < wanted.end
        and one.last >= wanted.start
    ]
    return sorted(found, key=lambda file: (file.slices[wanted.partition].first, file.path))


def runs_of(files: Sequence[DataFile], partition: int) -> list[list[DataFile]]:
    """Files whose offsets lie between each other's are read together, and sorted; the others one after another."""
    runs: list[list[DataFile]] = []
    last = -1
    for file in files:
        one = file.slices[partition]
        if runs and one.first <= last:
            runs[-1].append(file)
        else:
            runs.append([file])
        last = max(last, one.last)
    return runs


def stream_options(plan: Plan, settings: ReloadSettings, credentials: Mapping[str, str]) -> dict[str, str]:
    """The options of `format("ottla-archive")`."""
    limit = {"maxOffsetsPerTrigger": str(settings.max_offsets_per_batch)}
    return {"plan": plan.to_json(), **limit, **credentials}


def partitions_needed(plan: Plan) -> dict[str, int]:
    """How many partitions a topic must have to keep every record in its own."""
    needed: dict[str, int] = {}
    for at in loaded(plan):
        needed[at.topic] = max(needed.get(at.topic, 0), at.partition + 1)
    return needed


def loaded(plan: Plan) -> Iterable[OffsetRange]:
    return [
        OffsetRange(*at, plan.start[at], end) for at, end in sorted(plan.end.items()) if end > plan.start[at]
    ]
