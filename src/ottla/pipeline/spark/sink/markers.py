"""Markers, by which the sink knows which batches it has written.

A marker is a record that is written in the same transaction as the rows of a Spark partition: which query wrote which
batch with which plan. All decisions about a batch that may have been written before are made here.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.pipeline.errors import PipelineError

# the query id of batch writes, whose batches the user numbers
BATCH_QUERY = "batch"
# The query id of the marker that says that a sink is in use, although none of its batches had rows yet.
_NO_ROWS_YET = ""


@dataclass(frozen=True)
class Marker:
    """The last batch of one Spark partition. `replaced` are the queries that this one replaced by `resetSink`.

    `size_bytes` is the size of its records, if it was counted.
    """

    query: str
    batch: int
    plan: str
    rows: int
    replaced: frozenset[str] = field(default=frozenset())
    size_bytes: int = 0

    def encode(self) -> bytes:
        document = {
            "query": self.query,
            "batch": self.batch,
            "plan": self.plan,
            "rows": self.rows,
            "bytes": self.size_bytes,
            "replaced": sorted(self.replaced),
        }
        return json.dumps(document).encode()


def decode_marker(value: bytes) -> Marker:
    document = json.loads(value)
    return Marker(
        query=document["query"],
        batch=document["batch"],
        plan=document["plan"],
        rows=document["rows"],
        replaced=frozenset(document["replaced"]),
        # An older Ottla did not count it.
        size_bytes=document.get("bytes", 0),
    )


Markers = Mapping[int, Marker]


class Snapshot(NamedTuple):
    """The markers of all Spark partitions at one moment, and the number of partitions of their topic."""

    markers: dict[int, Marker]
    room: int


class Attempt(NamedTuple):
    """The batch that is about to be written: its query, number and plan."""

    sink_id: str
    query: str
    batch: int
    plan: str
    reset: str | None = None
    accept_plan: str | None = None


def check_attempt(attempt: Attempt, markers: Markers) -> None:
    """Raises PipelineError if the markers, as they were when the batch started, do not allow to write any of it.

    Every task of a batch sees the same markers, so either all of them write or none does.
    """
    if not markers and _needs_markers(attempt):
        raise _no_markers(attempt)
    mine = _replaceable_queries(attempt, markers)
    for partition, marker in sorted(markers.items()):
        if marker.query == _NO_ROWS_YET:
            continue
        if marker.query == attempt.query:
            _check_same_query(attempt, partition, marker)
        elif marker.query not in mine:
            raise _other_query(attempt, marker)


def first_attempt(sink_id: str, batch: int, written: list["Written"], markers: Markers) -> Attempt | None:
    """The attempt whose marker the driver must write for a stream's first batch if it had no rows.

    So every later batch finds a marker, unless the markers are lost. None if there is one, or will be.
    """
    if batch > 0 or markers or any(task.rows for task in written):
        return None
    return Attempt(sink_id, _NO_ROWS_YET, batch, plan="")


def _needs_markers(attempt: Attempt) -> bool:
    return attempt.batch > 0 and attempt.query != BATCH_QUERY and attempt.reset != _reset_of_batch(attempt)


def _reset_of_batch(attempt: Attempt) -> str:
    """The value of `resetSink` for lost markers. It names the batch, so it does not hide that they are lost again."""
    return f"{attempt.query}@{attempt.batch}"


def _no_markers(attempt: Attempt) -> PipelineError:
    reset = _reset_of_batch(attempt)
    return PipelineError(
        f"Sink `{attempt.sink_id}` has no markers, and the query would write batch {attempt.batch}: the topic of its"
        " markers was deleted or emptied, or the checkpoint belongs to another sink id or another cluster. Whether a"
        " part of the batch is written already cannot be known.",
        "Use the cluster and the sink id of the earlier batches. If the markers are lost, look at the end of the topics"
        f' that are written, and then set the option resetSink="{reset}", which in a pipeline.toml is'
        f' reset_sink = "{reset}" of the stage: rows of this batch that were written before are written again.',
    )


def _replaceable_queries(attempt: Attempt, markers: Markers) -> frozenset[str]:
    """The queries whose markers this one may replace."""
    names_query = attempt.reset and attempt.reset != _reset_of_batch(attempt)
    known: frozenset[str] = frozenset([str(attempt.reset)]) if names_query else frozenset()
    return known.union(*(marker.replaced for marker in markers.values() if marker.query == attempt.query))


def _check_same_query(attempt: Attempt, partition: int, marker: Marker) -> None:
    if marker.batch > attempt.batch:
        raise PipelineError(
            f"Sink `{attempt.sink_id}` has batch {marker.batch} of this query already, and the query would write"
            f" batch {attempt.batch}: its checkpoint is older than the sink.",
            "Restore the newer checkpoint; or use a new checkpoint and a new sink id, and start to read where the"
            " written rows end.",
        )
    is_accepted = attempt.accept_plan == marker.plan
    if marker.batch == attempt.batch and marker.plan != attempt.plan and not is_accepted:
        raise PipelineError(
            f"Batch {attempt.batch} of sink `{attempt.sink_id}` was written in part (Spark partition {partition},"
            f" {marker.rows:,} rows) by the plan {marker.plan}, and the query now has the plan {attempt.plan}:"
            " the rest of the batch may hold other rows.",
            "Run the old plan until it has finished the batch, then change it. Or, if each row stays in its Spark"
            f' partition (other columns, other filters), set the option acceptPlan="{marker.plan}", which in a'
            f' pipeline.toml is accept_plan = "{marker.plan}" of the stage.',
        )


def _other_query(attempt: Attempt, marker: Marker) -> PipelineError:
    return PipelineError(
        f"Sink `{attempt.sink_id}` was last written by the query {marker.query} (batch {marker.batch}), and this is the"
        f" query {attempt.query}: another query, or the same one with a new checkpoint.",
        "Use the checkpoint of the old query, or another sink id. Or, if this query replaces the old one (the rows that"
        f' it reads again are written again), set the option resetSink="{marker.query}", which in a pipeline.toml is'
        f' reset_sink = "{marker.query}" of the stage.',
    )


def is_written(attempt: Attempt, marker: Marker | None) -> bool:
    """Whether the partition's rows of the batch are written, by the partition's marker."""
    return marker is not None and (marker.query, marker.batch) == (attempt.query, attempt.batch)


def next_marker(attempt: Attempt, markers: Markers, rows: int, size_bytes: int = 0) -> Marker:
    """`size_bytes` is the size of the rows, if it is counted."""
    replaced = _replaceable_queries(attempt, markers) - {attempt.query}
    return Marker(attempt.query, attempt.batch, attempt.plan, rows, replaced, size_bytes)


class Written(NamedTuple):
    """A task's report to the driver, whichever attempt has written the rows. A partition without rows has no marker."""

    partition: int
    rows: int
    seconds: float = 0.0
    size_bytes: int = 0


def unmarked_partitions(query: str, batch: int, written: list[Written], markers: Markers) -> list[int]:
    """The Spark partitions whose tasks wrote rows of the batch, and that have no marker of it."""
    marked = {
        partition for partition, marker in markers.items() if (marker.query, marker.batch) == (query, batch)
    }
    return sorted(task.partition for task in written if task.rows and task.partition not in marked)


# share of the time that a transaction may last
_NEAR_TIMEOUT = 0.5


def timeout_warning(sink_id: str, batch: int, written: list[Written], timeout_s: float) -> str | None:
    slowest = max(written, key=lambda task: task.seconds, default=None)
    if slowest is None or slowest.seconds < _NEAR_TIMEOUT * timeout_s:
        return None
    return (
        f"Batch {batch} of sink `{sink_id}`: Spark partition {slowest.partition} took {slowest.seconds:.0f} s of the"
        f" {timeout_s:.0f} s that its transaction may last, for {slowest.rows:,} rows. Make the batches smaller"
        " (maxOffsetsPerTrigger), use more partitions, or raise kafka.transaction.timeout.ms together with the"
        " cluster's transaction.max.timeout.ms."
    )
