"""Runs a pipeline in this process, with a display at the terminal, until it ends or a signal stops it."""

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from ottla.admin.signal_flag import SignalFlag
from ottla.model.http_address import HttpAddress
from ottla.pipeline.config import Pipeline
from ottla.pipeline.display import display_for
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.health import Health, serve_health
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
    master: str | None = None,
    metrics: HttpAddress | None = None,
) -> bool:
    """Returns whether no stage failed. Ctrl-C and SIGTERM stop it without loss: the next run resumes there.

    `metrics` is the address at which it serves its health.
    """
    console = Console(highlight=False, markup=False, soft_wrap=True)
    plain = plain or not console.is_terminal
    for topic in create_missing_topics(connect(pipeline.context.cluster), pipeline.topics):
        console.print(f"Created topic {topic}")
    waves = waves_of(pipeline, only, once=once)
    runs = [run for wave in waves for run in wave]
    health = Health(runs)
    stop = SignalFlag()
    log = None if plain else pipeline.context.folder / _LOG_NAME
    where = master or pipeline.spark.master
    console.print(f"Starting Spark on {where}" + (f"; its log is {log}" if log else ""))
    with (
        set_by_signals(stop),
        health_at(metrics, health, console),
        stderr_to(log),
        open_session(pipeline, master) as spark,
    ):
        if spark.sparkContext.uiWebUrl:
            console.print(f"Spark's web UI: {spark.sparkContext.uiWebUrl}")
        # Again, because Spark installs a handler of its own when it creates a session.
        with set_by_signals(stop), display_for(console, plain=plain) as display:
            trigger = trigger_of(pipeline, once=once)
            succeeded = run_stages(spark, waves, trigger, display, stop, health.polled)
        console.print(closing_lines(runs, stopped=stop.is_set() or is_ended(runs)))
    return succeeded


@contextmanager
def health_at(address: HttpAddress | None, health: Health, console: Console) -> Iterator[None]:
    if address is None:
        yield
        return
    with serve_health(address, health) as url:
        console.print(f"Health: {url}/healthz and {url}/readyz")
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
