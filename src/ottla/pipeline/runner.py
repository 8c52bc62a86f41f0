"""Runs the stages of a pipeline: starts their queries, restarts them after errors, and stops them.

A required stage that is given up ends the run. After another the others continue, and the exit code reports it at the
end.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ottla.admin.signal_flag import SignalFlag
from ottla.pipeline.config import Pipeline, as_text
from ottla.pipeline.errors import PipelineError, RetriableError
from ottla.pipeline.progress import Progress, TopicOffsets, position_of, progress_of
from ottla.pipeline.query_errors import summarize
from ottla.pipeline.restarts import ONCE, RestartPolicy, Restarts, policy_of
from ottla.pipeline.stage import Stage
from ottla.pipeline.written_bytes import WrittenBytes

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

POLL_S = 0.5
SHUFFLE = "spark.sql.shuffle.partitions"
_CLUSTER_PARTITIONS = 32
_PARTITIONS_MAX = 200
_ENDED_BY_ITSELF = RetriableError("The query ended by itself, which it should not.", "Check Spark's log.")


class StageRun:
    """One stage while the pipeline runs. `state` is waiting, running, done or failed; `note` gives details.

    `is_required` means that the run ends if the stage is given up, unless each stage ends with its data (`--once`).
    """

    def __init__(
        self,
        name: str,
        stage: Stage,
        policy: RestartPolicy,
        *,
        is_required: bool = True,
        written: WrittenBytes | None = None,
    ) -> None:
        self.name = name
        self.stage = stage
        self.state = "waiting"
        self.note = "not started yet"
        self.rows = 0
        # None if nobody counts them
        self.written_bytes = None if written is None else 0
        self.dead_letters: int | None = None
        self.late_rows = 0
        self.batches = 0
        self.batch_seconds = 0.0
        # in sum, by Spark's names; replaced as a whole, since another thread reads it
        self.phase_seconds: Mapping[str, float] = {}
        self.restarts = 0
        self.last_batch_at_s: float | None = None
        self.progress: Progress | None = None
        self.position: TopicOffsets | None = None
        self.is_required = is_required
        self._ends_with_its_data = policy is ONCE
        self._restarts = Restarts(policy)
        self._written = written
        self._start_at = 0.0
        self._query: StreamingQuery | None = None

    @property
    def is_over(self) -> bool:
        return self.state in ("done", "failed")

    @property
    def ends_run(self) -> bool:
        return self.state == "failed" and self.is_required and not self._ends_with_its_data

    def step(self, spark: "SparkSession", trigger: Mapping[str, Any], now: float) -> list[Progress]:
        """Polls the query, or starts it when it is due. Returns the batches since the last poll."""
        if self.is_over:
            return []
        try:
            if self._query is None:
                if now >= self._start_at:
                    self._query = self.stage.start(spark, trigger)
                    self.state, self.note = "running", "started"
                return []
            return self._poll(self._query, now)
        except Exception as error:
            check_spark(spark, error)
            self._failed(error, now)
            return []

    def _poll(self, query: "StreamingQuery", now: float) -> list[Progress]:
        # Read before the progress: a query that ends in between has reported everything by the next poll.
        is_active = query.isActive
        batches = self._new_batches(query)
        if is_active:
            self.note = query.status["message"]
        else:
            error = query.exception()
            if error is not None:
                self._failed(error, now)
            elif self._ends_with_its_data:
                self.state, self.note = "done", "all available records are processed"
            else:
                self._failed(_ENDED_BY_ITSELF, now)
        return batches

    def _new_batches(self, query: "StreamingQuery") -> list[Progress]:
        seen = self.progress.batch if self.progress else -1
        last = query.lastProgress
        if last is None:
            return []
        reports = [last] if last["batchId"] <= seen + 1 else query.recentProgress
        batches = [item for report in reports if (item := progress_of(report)).batch > seen and item.rows]
        for batch in batches:
            self._restarts.reset()
            self._count(batch)
        self.position = position_of(last) or self.position
        self.progress = batches[-1] if batches else self._idle(progress_of(last))
        return batches

    def _count(self, batch: Progress) -> None:
        self.rows += batch.rows
        self.late_rows += batch.late_rows
        if batch.dead_letters is not None:
            self.dead_letters = (self.dead_letters or 0) + batch.dead_letters
        self.batches += 1
        self.batch_seconds += batch.seconds
        sums = self.phase_seconds
        self.phase_seconds = {
            **sums,
            **{phase: sums.get(phase, 0.0) + seconds for phase, seconds in batch.phases.items()},
        }
        if self._written is not None:
            self.written_bytes = self._written.read()
        self.last_batch_at_s = time.time()

    def _idle(self, report: Progress) -> Progress | None:
        """A report without rows updates how far behind the stage is; the last batch stays the last."""
        if self.progress is None or report.rows:
            return self.progress
        idle = {"rows_per_second": 0.0, "behind": report.behind}
        return Progress(**{**vars(self.progress), **idle})

    def _failed(self, error: BaseException, now: float) -> None:
        summary = summarize(error)
        # A poll may fail while the query lives. It would run on, and the next start find its name in use.
        self.stop()
        self._query = None
        restart = self._restarts.next(is_temporary=summary.is_retriable, is_permanent=summary.is_permanent)
        if restart is None:
            self.state, self.note = "failed", summary.sentence
        else:
            self.restarts += 1
            self._start_at = now + restart.pause_s
            self.state, self.note = "waiting", f"{summary.sentence} {restart.text}"

    def stop(self) -> None:
        """The next start runs again what the current batch has not committed."""
        if self._query is not None:
            with contextlib.suppress(Exception):
                self._query.stop()


class Display(Protocol):
    """`changed` is called when a stage's state changes, `batch` after a batch with rows, `show` at every poll."""

    def changed(self, run: StageRun) -> None: ...
    def batch(self, run: StageRun, progress: Progress) -> None: ...
    def show(self, runs: Sequence[StageRun]) -> None: ...


def run_stages(
    spark: "SparkSession",
    waves: Sequence[Sequence[StageRun]],
    trigger: Mapping[str, Any],
    display: Display,
    stop: SignalFlag,
    polled: Callable[[], None] = lambda: None,
) -> bool:
    """Runs one wave after another until `stop` is set, all are over, or a required stage has failed.

    Calls `polled` after every poll. Returns whether no stage failed.
    """
    runs = [run for wave in waves for run in wave]
    try:
        for wave in waves:
            while not (stop.is_set() or is_ended(wave) or all(run.is_over for run in wave)):
                for run in wave:
                    _step(run, spark, trigger, display)
                display.show(runs)
                polled()
                if not (is_ended(wave) or all(run.is_over for run in wave)):
                    stop.wait(POLL_S)
    finally:
        if stop.is_set():
            silence(spark)
        for run in runs:
            run.stop()
    return all(run.state != "failed" for run in runs)


def silence(spark: "SparkSession") -> None:
    """Turns off all that Spark prints. A stop cancels tasks, and each part of Spark reports that with a stack.

    The driver logs a cancelled task as an error. A Python process of Spark that starts, reads or writes finds its
    connection closed; the JVM passes its stderr on, until its own is closed. The server for accumulators is in this
    process.
    """
    with contextlib.suppress(Exception):
        context: Any = spark.sparkContext
        context._accumulatorServer.handle_error = lambda *_: None
        context.setLogLevel("OFF")
        context._jvm.java.lang.System.err.close()


def is_ended(runs: Sequence[StageRun]) -> bool:
    """Whether a stage was given up without which the run must not continue."""
    return any(run.ends_run for run in runs)


def _step(run: StageRun, spark: "SparkSession", trigger: Mapping[str, Any], display: Display) -> None:
    before = (run.state, run.note if run.state == "waiting" else "")
    for progress in run.step(spark, trigger, time.monotonic()):
        display.batch(run, progress)
    if (run.state, run.note if run.state == "waiting" else "") != before:
        display.changed(run)


def waves_of(pipeline: Pipeline, only: str | None, *, once: bool) -> list[list[StageRun]]:
    """All stages at once; or, with `once`, the stages that write a topic before those that read it.

    Transforms then run in the order of the file: one may read what another writes.
    """
    policy = ONCE if once else policy_of(pipeline.spark.restarts_max)
    required = {item.name for item in pipeline.declared if item.required}
    runs = {
        name: StageRun(
            name, stage, policy, is_required=name in required, written=pipeline.context.written(name)
        )
        for name, stage in pipeline.stages(only).items()
    }
    if not once:
        return [list(runs.values())]
    groups = {item.name: item.group for item in pipeline.declared}
    by_group = {
        group: [run for name, run in runs.items() if groups[name] == group] for group in set(groups.values())
    }
    waves = [
        by_group.get("sources", []),
        *([run] for run in by_group.get("transforms", [])),
        by_group.get("sinks", []),
    ]
    return [wave for wave in waves if wave]


def trigger_of(pipeline: Pipeline, *, once: bool) -> dict[str, Any]:
    return {"availableNow": True} if once else {"processingTime": pipeline.spark.interval}


def check_spark(spark: "SparkSession", error: BaseException) -> None:
    """Raises PipelineError if Spark itself has ended: no stage can be restarted then."""
    from py4j.protocol import Py4JError

    with contextlib.suppress(Py4JError, OSError):
        if not spark.sparkContext._jsc.sc().isStopped():
            return
    raise PipelineError(
        f"Spark has ended: {summarize(error).sentence}",
        "Start the pipeline again: it resumes where it stopped. If it happens again, give Spark more memory, "
        'as in conf = { "spark.driver.memory" = "4g" } in [spark].',
    )


def shuffle_partitions(pipeline: Pipeline, spark: "SparkContext") -> int:
    """As many as can run at once, or as the pipeline's largest topic has partitions.

    Spark's 200 are far too many for most pipelines: each is a task, with a transaction and files of state of its own.
    On a cluster it is not known how many executors come, and a query with state cannot change the number later.
    """
    cores = spark.defaultParallelism if str(spark.master).startswith("local") else _CLUSTER_PARTITIONS
    topics = (topic.partitions for topic in pipeline.topics.values())
    return min(max(cores, *topics, 1), _PARTITIONS_MAX)


@contextlib.contextmanager
def open_session(pipeline: Pipeline, master: str | None) -> Iterator["SparkSession"]:
    """A Spark session as the file configures it. `master` overrides the file's."""
    from ottla.pipeline.spark import spark_session

    conf = {key: as_text(value) for key, value in pipeline.spark.conf.items()}
    spark = spark_session(f"ottla {pipeline.context.pipeline}", master or pipeline.spark.master, conf)
    try:
        # Also spark-submit and spark-defaults.conf may set it.
        if SHUFFLE not in conf and not spark.sparkContext.getConf().contains(SHUFFLE):
            spark.conf.set(SHUFFLE, str(shuffle_partitions(pipeline, spark.sparkContext)))
        yield spark
    finally:
        with contextlib.suppress(Exception):
            spark.stop()
