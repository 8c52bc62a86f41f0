"""The metrics of a running pipeline: of the run, of each stage, and of the archive.

All values are in memory already: the runner, the watch of the lag and the archive's watch of the retention leave them
there. A text needs no Spark job and no request to a broker.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.metrics import Family, Kind, TextFormat, check_families, labels, line
from ottla.pipeline.stage import Archiving

if TYPE_CHECKING:
    from ottla.pipeline.lag_watch import StageLag
    from ottla.pipeline.runner import StageRun

STATES = ("waiting", "running", "done", "failed")
_STAGE = ("stage",)
_PARTITION = ("stage", "topic", "partition")

SECTIONS: dict[str, tuple[Family, ...]] = {
    "The run": (
        Family("ottla_pipeline_live", Kind.GAUGE, "1 while the runner polls its stages, otherwise 0."),
        Family(
            "ottla_pipeline_ready", Kind.GAUGE, "1 while all required stages run or are done, otherwise 0."
        ),
    ),
    "Stages": (
        Family(
            "ottla_pipeline_stage_state",
            Kind.GAUGE,
            "1 for the state of the stage, 0 for the others: waiting (for a start), running, done, failed.",
            ("stage", "state"),
        ),
        Family(
            "ottla_pipeline_restarts_total",
            Kind.COUNTER,
            "How often the stage was started again after an error.",
            _STAGE,
        ),
        Family("ottla_pipeline_rows_total", Kind.COUNTER, "Rows that the stage has read in batches.", _STAGE),
        Family(
            "ottla_pipeline_rows_per_second",
            Kind.GAUGE,
            "Rows of the last batch by its time; 0 while the stage has nothing to do.",
            _STAGE,
        ),
        Family(
            "ottla_pipeline_written_bytes_total",
            Kind.COUNTER,
            "Bytes that the stage has written: of a topic keys, values and headers, of an archive its Parquet files.",
            _STAGE,
        ),
        Family(
            "ottla_pipeline_dead_letters_total",
            Kind.COUNTER,
            "Records that the transform wrote to its topic of dead letters.",
            _STAGE,
        ),
        Family(
            "ottla_pipeline_late_rows_total",
            Kind.COUNTER,
            "Rows that Spark dropped, because they came later than the watermark allows.",
            _STAGE,
        ),
        Family(
            "ottla_pipeline_batch",
            Kind.GAUGE,
            "The number of the last batch with rows, by the checkpoint.",
            _STAGE,
        ),
        Family(
            "ottla_pipeline_last_batch_timestamp_seconds",
            Kind.GAUGE,
            "When the last batch with rows ended, in seconds since 1970.",
            _STAGE,
        ),
        Family(
            "ottla_pipeline_batch_duration_seconds",
            Kind.SUMMARY,
            "The time of batches with rows: its sum and their number.",
            _STAGE,
        ),
        Family(
            "ottla_pipeline_batch_phase_seconds_total",
            Kind.COUNTER,
            "The parts of that time, by Spark's names: addBatch reads, transforms and writes.",
            ("stage", "phase"),
        ),
        Family(
            "ottla_pipeline_state_rows", Kind.GAUGE, "Rows in the state of a query that keeps some.", _STAGE
        ),
        Family("ottla_pipeline_state_bytes", Kind.GAUGE, "Memory that this state takes.", _STAGE),
    ),
    "Lag": (
        Family(
            "ottla_pipeline_lag_records",
            Kind.GAUGE,
            "Records of its topics that the stage has not processed.",
            _STAGE,
        ),
        Family(
            "ottla_pipeline_lag_seconds",
            Kind.GAUGE,
            "The age of the oldest of these records, by its timestamp; 0 if there are none.",
            _STAGE,
        ),
    ),
    "Archive": (
        Family(
            "ottla_pipeline_archive_behind_records",
            Kind.GAUGE,
            "Records of the partition that are not archived.",
            _PARTITION,
        ),
        Family(
            "ottla_pipeline_archive_lost_offsets",
            Kind.GAUGE,
            "Offsets of the partition that were deleted before they were archived.",
            _PARTITION,
        ),
        Family(
            "ottla_pipeline_archive_retention_used_ratio",
            Kind.GAUGE,
            "The share of the topic's retention that is used up by records that are not archived; 1 means loss.",
            _PARTITION,
        ),
        Family(
            "ottla_pipeline_archive_retention_left_seconds",
            Kind.GAUGE,
            "The time until retention deletes the oldest record that is not archived; no sample without limit.",
            _PARTITION,
        ),
        Family(
            "ottla_pipeline_archive_topic_offsets",
            Kind.GAUGE,
            "Offsets that the partition has, from its earliest to its end.",
            _PARTITION,
        ),
        Family(
            "ottla_pipeline_archive_covered_offsets",
            Kind.GAUGE,
            "Those of them that the archive covers.",
            _PARTITION,
        ),
        Family(
            "ottla_pipeline_archive_coverage_ratio",
            Kind.GAUGE,
            "The covered ones by all of them; 1 if the partition has none.",
            _PARTITION,
        ),
        Family(
            "ottla_pipeline_archive_holes",
            Kind.GAUGE,
            "Ranges of offsets before the end of the archive that it does not cover.",
            _PARTITION,
        ),
        Family(
            "ottla_pipeline_archive_hole_offsets",
            Kind.GAUGE,
            "Offsets in these ranges. `ottla pipeline verify --ranges` names them.",
            _PARTITION,
        ),
    ),
}
FAMILIES = tuple(family for section in SECTIONS.values() for family in section)
check_families(FAMILIES)

_Sample = tuple[str, str, float | None]


class RunState(NamedTuple):
    """What a text is made of. `now_s` is the time since 1970."""

    runs: "Sequence[StageRun]"
    lags: "Mapping[str, StageLag]"
    is_live: bool
    is_ready: bool
    now_s: float


def text_of(state: RunState, text_format: TextFormat) -> str:
    """A family without samples is left out."""
    written: dict[str, list[str]] = {family.name: [] for family in FAMILIES}
    for sample, labels_text, value in _samples(state):
        if value is not None:
            family = sample if sample in written else sample.removesuffix("_sum").removesuffix("_count")
            written[family].append(line(sample, labels_text, value))
    parts = [
        text_format.header(family) + "".join(written[family.name])
        for family in FAMILIES
        if written[family.name]
    ]
    return "".join(parts) + text_format.end


def _samples(state: RunState) -> Iterator[_Sample]:
    """A value that is None is not known."""
    yield "ottla_pipeline_live", "", int(state.is_live)
    yield "ottla_pipeline_ready", "", int(state.is_ready)
    for run in state.runs:
        yield from _of_stage(run)
        yield from _of_lag(run, state.lags.get(run.name), state.now_s)
        if isinstance(run.stage, Archiving):
            yield from _of_archive(run.name, run.stage)


def _of_stage(run: "StageRun") -> Iterator[_Sample]:
    progress, current = run.progress, run.state
    stage = labels(stage=run.name)
    for state in STATES:
        yield "ottla_pipeline_stage_state", labels(stage=run.name, state=state), int(state == current)
    yield "ottla_pipeline_restarts_total", stage, run.restarts
    yield "ottla_pipeline_rows_total", stage, run.rows
    yield "ottla_pipeline_written_bytes_total", stage, run.written_bytes
    yield "ottla_pipeline_dead_letters_total", stage, run.dead_letters
    yield "ottla_pipeline_late_rows_total", stage, run.late_rows
    yield "ottla_pipeline_last_batch_timestamp_seconds", stage, run.last_batch_at_s
    yield "ottla_pipeline_batch_duration_seconds_sum", stage, run.batch_seconds
    yield "ottla_pipeline_batch_duration_seconds_count", stage, run.batches
    for phase, seconds in run.phase_seconds.items():
        yield "ottla_pipeline_batch_phase_seconds_total", labels(stage=run.name, phase=phase), seconds
    if progress is not None:
        # A stage that waits for a restart does nothing, whatever its last batch did.
        yield (
            "ottla_pipeline_rows_per_second",
            stage,
            progress.rows_per_second if current == "running" else 0.0,
        )
        yield "ottla_pipeline_batch", stage, progress.batch
        yield "ottla_pipeline_state_rows", stage, progress.state_rows
        yield "ottla_pipeline_state_bytes", stage, progress.state_bytes


def _of_lag(run: "StageRun", lag: "StageLag | None", now_s: float) -> Iterator[_Sample]:
    position = run.position
    if lag is not None and position is not None:
        stage = labels(stage=run.name)
        yield "ottla_pipeline_lag_records", stage, lag.records(position)
        yield "ottla_pipeline_lag_seconds", stage, lag.seconds(position, now_s)


def _of_archive(name: str, stage: Archiving) -> Iterator[_Sample]:
    for lag in stage.lags():
        where = labels(stage=name, topic=lag.at.topic, partition=lag.at.partition)
        yield "ottla_pipeline_archive_behind_records", where, lag.behind
        yield "ottla_pipeline_archive_lost_offsets", where, lag.deleted
        yield "ottla_pipeline_archive_retention_used_ratio", where, lag.used
        yield "ottla_pipeline_archive_retention_left_seconds", where, lag.expires_in_s
    for part in stage.coverage():
        where = labels(stage=name, topic=part.at.topic, partition=part.at.partition)
        yield "ottla_pipeline_archive_topic_offsets", where, part.offsets
        yield "ottla_pipeline_archive_covered_offsets", where, part.covered
        ratio = part.covered / part.offsets if part.offsets else 1.0
        yield "ottla_pipeline_archive_coverage_ratio", where, ratio
        yield "ottla_pipeline_archive_holes", where, part.holes
        yield "ottla_pipeline_archive_hole_offsets", where, part.hole_offsets
