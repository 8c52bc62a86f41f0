"""Runs a pipeline in this process, shown at the terminal, until it ends or a signal stops it."""

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Event
from typing import Any

from rich.console import Console

from ottla.pipeline.config import Pipeline
from ottla.pipeline.display import display_for
from ottla.pipeline.run import StageRun, run_stages, session, trigger_of, waves_of
from ottla.pipeline.topics import connect, make_topics


def run_pipeline(
    pipeline: Pipeline,
    *,
    once: bool = False,
    only: str | None = None,
    plain: bool = False,
    master: str | None = None,
    header: str = "",
) -> bool:
    """Whether no stage has failed. Ctrl-C and SIGTERM stop it: nothing is lost, the next run goes on there."""
    console = Console(highlight=False)
    for topic in make_topics(connect(pipeline.context.cluster), pipeline.topics):
        console.print(f"Made topic {topic}", markup=False)
    waves = waves_of(pipeline, only, once=once)
    console.print(f"Starting Spark on {master or pipeline.spark.master} ...", markup=False)
    stop = Event()
    with set_by_signals(stop), session(pipeline, master) as spark:
        # Once more: making a session, Spark has put in a handler of its own.
        with set_by_signals(stop), display_for(console, plain=plain, header=header) as display:
            went_well = run_stages(spark, waves, trigger_of(pipeline, once=once), display, stop)
        console.print(ending([run for wave in waves for run in wave], stopped=stop.is_set()), markup=False)
    return went_well


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
