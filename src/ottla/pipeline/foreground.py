"""Runs a pipeline in this process, with a display at the terminal, until it ends or a signal stops it."""

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from rich.console import Console

from ottla.admin.signal_flag import SignalFlag
from ottla.model.http_address import HttpAddress
from ottla.pipeline.config import Pipeline
from ottla.pipeline.display import Form, Output, display_for
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.health import Health, serve_health
from ottla.pipeline.lag_watch import LagWatch
from ottla.pipeline.query_errors import summarize
from ottla.pipeline.runner import StageRun, is_ended, open_session, run_stages, trigger_of, waves_of
from ottla.pipeline.topics import connect, create_missing_topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG_NAME = "spark.log"


def run_pipeline(
    pipeline: Pipeline,
    *,
    once: bool = False,
    only: str | None = None,
    plain: bool = False,
    as_json: bool = False,
    master: str | None = None,
    metrics: HttpAddress | None = None,
) -> bool:
    """Returns whether no stage failed. Ctrl-C and SIGTERM stop it without loss: the next run resumes there.

    `plain` and `as_json` are forms of the output; without them it is a table at a terminal, otherwise plain lines.
    `metrics` is the address at which it serves its health and its metrics.
    """
    output = output_of(plain=plain, as_json=as_json)
    for topic in create_missing_topics(connect(pipeline.context.cluster), pipeline.topics):
        output.say(f"Created topic {topic}", "topic", created=topic)
    with counting(pipeline, metrics) as counted:
        return _run(counted, output, once=once, only=only, master=master, metrics=metrics)


def _run(
    pipeline: Pipeline,
    output: Output,
    *,
    once: bool,
    only: str | None,
    master: str | None,
    metrics: HttpAddress | None,
) -> bool:
    waves = waves_of(pipeline, only, once=once)
    runs = [run for wave in waves for run in wave]
    lags = LagWatch(pipeline.context.cluster, runs)
    health = Health(runs, lags=lambda: lags.lags)
    stop = SignalFlag()
    log = None if output.form is not Form.TABLE else pipeline.context.folder / _LOG_NAME
    where = master or pipeline.spark.master
    output.say(f"Starting Spark on {where}" + (f"; its log is {log}" if log else ""), "start", master=where)
    with (
        set_by_signals(stop),
        served_at(metrics, health, lags, output),
        stderr_to(log),
        open_session(pipeline, master) as spark,
    ):
        if url := spark.sparkContext.uiWebUrl:
            output.say(f"Spark's web UI: {url}", "spark", web_ui=url)
        # Again, because Spark installs a handler of its own when it creates a session.
        with set_by_signals(stop), display_for(output) as display:
            trigger = trigger_of(pipeline, once=once)
            succeeded = run_stages(spark, waves, trigger, display, stop, health.polled)
        stopped = stop.is_set() or is_ended(runs)
        output.say(closing_lines(runs, stopped=stopped), "end", stopped=stopped, stages=health.stages())
    return succeeded


@contextmanager
def counting(pipeline: Pipeline, metrics: HttpAddress | None) -> Iterator[Pipeline]:
    """The pipeline, whose stages count what they write if metrics are served."""
    if metrics is None:
        yield pipeline
        return
    with TemporaryDirectory(prefix="ottla-") as folder:
        yield replace(pipeline, context=replace(pipeline.context, counts=Path(folder)))


def output_of(*, plain: bool, as_json: bool) -> Output:
    console = Console(highlight=False, markup=False, soft_wrap=True)
    if as_json:
        return Output(console, Form.JSON)
    return Output(console, Form.PLAIN if plain or not console.is_terminal else Form.TABLE)


@contextmanager
def served_at(address: HttpAddress | None, health: Health, lags: LagWatch, output: Output) -> Iterator[None]:
    if address is None:
        yield
        return
    with serve_health(address, health) as url, lags.measuring():
        output.say(f"Health: {url}/healthz and {url}/readyz\nMetrics: {url}/metrics", "serving", url=url)
        yield


@contextmanager
def command_session(pipeline: Pipeline, master: str | None) -> Iterator["SparkSession"]:
    """A Spark session for one command. Spark's errors become PipelineErrors, and its output goes to the log."""
    from pyspark.errors import PySparkException

    log = pipeline.context.folder / _LOG_NAME
    with stderr_to(log), open_session(pipeline, master) as spark:
        try:
            yield spark
        except PySparkException as error:
            raise PipelineError(summarize(error).sentence, f"See {log} for all of Spark's output.") from None


@contextmanager
def stderr_to(log: Path | None) -> Iterator[None]:
    """Redirects stderr, to which Spark and librdkafka write, to a file: their lines would break the live table."""
    if log is None:
        yield
        return
    sys.stderr.flush()
    before = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(before, 2)
        os.close(before)


def closing_lines(runs: Sequence[StageRun], *, stopped: bool) -> str:
    failed = [f"{run.name} failed: {run.note}" for run in runs if run.state == "failed"]
    rows = ", ".join(f"{run.name} {run.rows:,} rows" for run in runs)
    return "\n".join([*failed, f"{'Stopped' if stopped else 'Done'}: {rows}."])


@contextmanager
def set_by_signals(stop: SignalFlag) -> Iterator[None]:
    """Ctrl-C and SIGTERM set the event. A second signal raises KeyboardInterrupt."""

    def on_signal(number: int, frame: Any) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
