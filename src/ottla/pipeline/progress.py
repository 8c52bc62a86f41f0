"""How far a stage is, from what Spark reports after every batch; and how many records it is behind."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ottla.pipeline.spark.offsets import BESIDE

Offsets = dict[str, dict[int, int]]


@dataclass(frozen=True)
class Progress:
    """One batch. `behind` is None where the source does not count in records, or says nothing.

    `late_rows` came later than the watermark allows, and Spark has dropped them.
    """

    batch: int
    rows: int
    rows_per_second: float
    seconds: float
    behind: int | None
    dead_letters: int | None
    late_rows: int = 0


def progress_of(report: Mapping[str, Any]) -> Progress:
    """From one of Spark's reports, `StreamingQueryProgress` as a dictionary."""
    sources = report.get("sources") or []
    seconds = float((report.get("durationMs") or {}).get("triggerExecution", 0)) / 1000
    rows = int(report.get("numInputRows") or 0)
    return Progress(
        batch=int(report.get("batchId") or 0),
        rows=rows,
        rows_per_second=rows / seconds if seconds else 0.0,
        seconds=seconds,
        behind=behind_of(sources),
        dead_letters=dead_letters_of(report.get("observedMetrics") or {}),
        late_rows=sum(
            int(one.get("numRowsDroppedByWatermark") or 0) for one in report.get("stateOperators") or []
        ),
    )


def behind_of(sources: Iterable[Mapping[str, Any]]) -> int | None:
    """Records that are there, but in no batch yet, over all sources that count in offsets of topics."""
    counts = []
    for source in sources:
        done, latest = topic_offsets(source.get("endOffset")), topic_offsets(source.get("latestOffset"))
        if done is not None and latest is not None:
            counts.append(behind(done, latest))
    return sum(counts) if counts else None


def topic_offsets(offset: Any) -> Offsets | None:
    """Offsets in the form of Spark's Kafka source, `{"topic": {"0": 23}}`; None where they are of another form."""
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except ValueError:
            return None
    if not isinstance(offset, dict) or not offset:
        return None
    offset = {topic: partitions for topic, partitions in offset.items() if not topic.startswith(BESIDE)}
    if not all(isinstance(partitions, dict) for partitions in offset.values()):
        return None
    try:
        return {
            topic: {int(partition): position_of(at) for partition, at in partitions.items()}
            for topic, partitions in offset.items()
        }
    except (TypeError, ValueError):
        return None


def position_of(at: Any) -> int:
    if type(at) is not int:
        raise TypeError(f"{at!r} is no offset")
    return at


def behind(done: Offsets, latest: Offsets) -> int:
    """Partitions that are not begun count from 0: what retention has deleted of them counts too."""
    return sum(
        max(0, end - done.get(topic, {}).get(partition, 0))
        for topic, partitions in latest.items()
        for partition, end in partitions.items()
    )


def dead_letters_of(metrics: Mapping[str, Any]) -> int | None:
    """Stages that have dead letters count them in a metric of that name."""
    counts = [values["dead_letters"] for values in metrics.values() if "dead_letters" in values]
    return sum(int(count or 0) for count in counts) if counts else None
