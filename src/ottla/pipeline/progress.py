"""The progress of a stage, from the report that Spark makes after every batch: rows, dead letters, records behind."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ottla.pipeline.spark.offsets import EXTRA_PREFIX

_WHOLE_BATCH = "triggerExecution"

# by topic and partition
TopicOffsets = dict[str, dict[int, int]]


@dataclass(frozen=True)
class Progress:
    """One batch. `behind` is None if the source does not count in records, or does not report its latest offset.

    `late_rows` are rows that Spark dropped, because they came later than the watermark allows. `phases` are the parts
    of `seconds`, by Spark's names. `state_rows` and `state_bytes` are what a query with state holds.
    """

    batch: int
    rows: int
    rows_per_second: float
    seconds: float
    behind: int | None
    dead_letters: int | None
    late_rows: int = 0
    phases: Mapping[str, float] = field(default_factory=dict)
    state_rows: int | None = None
    state_bytes: int | None = None


def progress_of(report: Mapping[str, Any]) -> Progress:
    """`report` is Spark's `StreamingQueryProgress` as a dictionary."""
    sources = report.get("sources") or []
    phases = {name: float(ms) / 1000 for name, ms in (report.get("durationMs") or {}).items()}
    seconds = phases.pop(_WHOLE_BATCH, 0.0)
    operators = report.get("stateOperators") or []
    rows = int(report.get("numInputRows") or 0)
    return Progress(
        batch=int(report.get("batchId") or 0),
        rows=rows,
        rows_per_second=rows / seconds if seconds else 0.0,
        seconds=seconds,
        behind=_behind_of(sources),
        dead_letters=_dead_letters_of(report.get("observedMetrics") or {}),
        late_rows=_sum_of(operators, "numRowsDroppedByWatermark"),
        phases=phases,
        state_rows=_sum_of(operators, "numRowsTotal") if operators else None,
        state_bytes=_sum_of(operators, "memoryUsedBytes") if operators else None,
    )


def position_of(report: Mapping[str, Any]) -> TopicOffsets | None:
    """Up to where the query has read its topics; None if no source is a topic."""
    ends = [topic_offsets(source.get("endOffset")) for source in report.get("sources") or []]
    position: TopicOffsets = {}
    for end in ends:
        for topic, partitions in (end or {}).items():
            read = position.setdefault(topic, {})
            # Two sources of a query may read the same topic: the slower one counts.
            read.update({at: min(offset, read.get(at, offset)) for at, offset in partitions.items()})
    return position or None


def _sum_of(operators: Iterable[Mapping[str, Any]], name: str) -> int:
    return sum(int(operator.get(name) or 0) for operator in operators)


def _behind_of(sources: Iterable[Mapping[str, Any]]) -> int | None:
    """Records that exist and are in no batch yet, over all sources that are topics."""
    counts = []
    for source in sources:
        done, latest = topic_offsets(source.get("endOffset")), topic_offsets(source.get("latestOffset"))
        if done is not None and latest is not None:
            counts.append(records_behind(done, latest))
    return sum(counts) if counts else None


def topic_offsets(offset: Any) -> TopicOffsets | None:
    """Offsets in the form of Spark's Kafka source, `{"topic": {"0": 23}}`; None if they have another form."""
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except ValueError:
            return None
    if not isinstance(offset, dict) or not offset:
        return None
    offset = {topic: partitions for topic, partitions in offset.items() if not topic.startswith(EXTRA_PREFIX)}
    if not all(isinstance(partitions, dict) for partitions in offset.values()):
        return None
    try:
        return {
            topic: {int(partition): _checked_offset(value) for partition, value in partitions.items()}
            for topic, partitions in offset.items()
        }
    except (TypeError, ValueError):
        return None


def _checked_offset(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r} is not an offset")
    return value


def records_behind(done: TopicOffsets, latest: TopicOffsets) -> int:
    """A partition that was not read yet counts from offset 0, so records that retention deleted count too."""
    return sum(
        max(0, end - done.get(topic, {}).get(partition, 0))
        for topic, partitions in latest.items()
        for partition, end in partitions.items()
    )


def _dead_letters_of(metrics: Mapping[str, Any]) -> int | None:
    """None if the stage has no metric `dead_letters`."""
    counts = [values["dead_letters"] for values in metrics.values() if "dead_letters" in values]
    return sum(int(count or 0) for count in counts) if counts else None
