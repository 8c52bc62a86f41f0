"""Runs a pipeline in this process, shown at the terminal, until it ends or a signal stops it."""

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from rich.console import Console

from ottla.pipeline.config import Pipeline
from ottla.pipeline.display import display_for
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.query_errors import summarize
from ottla.pipeline.runner import StageRun, open_session, run_stages, trigger_of, waves_of
from ottla.pipeline.topics import connect, create_missing_topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG_NAME = "spark.log"


def run_pipeline(
    pipeline: Pipeline,
    *,
    once: bool = False,
    only: str | None = None,
    plain: bool = False,
    master: str | None = None,
) -> bool:
    """Whether no stage has failed. Ctrl-C and SIGTERM stop it: nothing is lost, the next run goes on there."""
    console = Console(highlight=False, markup=False, soft_wrap=True)
    plain = plain or not console.is_terminal
    for topic in create_missing_topics(connect(pipeline.context.cluster), pipeline.topics):
        console.print(f"Created topic {topic}")
    waves = waves_of(pipeline, only, once=once)
    stop = Event()
    log = None if plain else pipeline.context.folder / LOG_NAME
    where = master or pipeline.spark.master
    console.print(f"Starting Spark on {where}" + (f", which logs to {log}" if log else ""))
    with set_by_signals(stop), errors_into(log), open_session(pipeline, master) as spark:
        if spark.sparkContext.uiWebUrl:
            console.print(f"Spark's own view: {spark.sparkContext.uiWebUrl}")
        # Once more: making a session, Spark has put in a handler of its own.
        with set_by_signals(stop), display_for(console, plain=plain) as display:
            went_well = run_stages(spark, waves, trigger_of(pipeline, once=once), display, stop)
        console.print(ending([run for wave in waves for run in wave], stopped=stop.is_set()))
    return went_well


@contextmanager
def command_session(pipeline: Pipeline, master: str | None) -> Iterator["SparkSession"]:
    """Spark for one question: what it refuses is said in a sentence, and its own words go into the log."""
    from pyspark.errors import PySparkException

    log = pipeline.context.folder / LOG_NAME
    with errors_into(log), open_session(pipeline, master) as spark:
        try:
            yield spark
        except PySparkException as error:
            raise PipelineError(summarize(error).sentence, f"All that Spark said stands in {log}.") from None


@contextmanager
def errors_into(log: Path | None) -> Iterator[None]:
    """Sends what Spark and librdkafka write to stderr into a file: it would tear the table at the terminal."""
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


def ending(runs: Sequence[StageRun], *, stopped: bool) -> str:
    failed = [f"{run.name} failed: {run.note}" for run in runs if run.state == "failed"]
    rows = ", ".join(f"{run.name} {run.rows:,} rows" for run in runs)
    return "\n".join([*failed, f"{'Stopped' if stopped else 'Done'}: {rows}."])


@contextmanager
def set_by_signals(stop: Event) -> Iterator[None]:
    """Ctrl-C and SIGTERM set the event. A second signal ends at once."""

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
