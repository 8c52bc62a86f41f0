"""The states of a stage in a run, without Spark: started, restarted, given up, stopped."""

from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from rich.console import Console
from tests.unit.pipeline.fake_stages import FakeQuery, FakeStage

from ottla.pipeline import runner
from ottla.pipeline.config import Pipeline, SparkSettings, StageDeclaration
from ottla.pipeline.display import PlainDisplay, display_for, state_of, table_of
from ottla.pipeline.errors import PipelineError, RetriableError
from ottla.pipeline.foreground import closing_lines
from ottla.pipeline.progress import Progress
from ottla.pipeline.runner import ATTEMPTS_MAX_ONCE, StageRun, run_stages, trigger_of, waves_of
from ottla.pipeline.stage import ClusterSettings, Context

TRIGGER: Mapping[str, Any] = {}
AWAY = RetriableError("The broker is away.", "Start it.")
WRONG = PipelineError("The topic is gone.", "Make it.")


@pytest.fixture(autouse=True)
def spark_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "check_spark", lambda spark, error: None)
    monkeypatch.setattr(runner, "POLL_S", 0.0)


class Heard:
    """A display that remembers, and can stop the run."""

    def __init__(self, stop: Event | None = None, when: str = "") -> None:
        self.events: list[str] = []
        self.stop, self.when = stop, when

    def changed(self, run: StageRun) -> None:
        self.events.append(f"{run.name} {run.state}")
        if self.stop and self.events[-1] == self.when:
            self.stop.set()

    def batch(self, run: StageRun, progress: Progress) -> None:
        self.events.append(f"{run.name} batch {progress.batch}")

    def show(self, runs: Sequence[StageRun]) -> None:
        pass


def stage(name: str, *queries: FakeQuery | Exception) -> FakeStage:
    made = FakeStage(name)
    made.queries = list(queries)
    return made


def run_of(made: FakeStage, attempts_max: int | None = ATTEMPTS_MAX_ONCE) -> StageRun:
    return StageRun(made.name, made, attempts_max=attempts_max)


def report(batch: int, rows: int, behind: int = 0) -> dict[str, Any]:
    offsets = {"endOffset": {"t": {"0": 0}}, "latestOffset": {"t": {"0": behind}}}
    return {
        "batchId": batch,
        "numInputRows": rows,
        "durationMs": {"triggerExecution": 100},
        "sources": [offsets],
    }


def finished(*reports: dict[str, Any], error: Exception | None = None) -> FakeQuery:
    return FakeQuery(isActive=False, error=error, reports=list(reports))


def step(run: StageRun, now: float) -> list[Progress]:
    return run.step(None, TRIGGER, now)  # type: ignore[arg-type]


def test_a_stage_runs_and_is_done_when_its_query_ends() -> None:
    run = run_of(stage("a", finished(report(0, 5), report(1, 6))))
    step(run, 0)
    assert run.state == "running"
    assert [progress.batch for progress in step(run, 1)] == [0, 1]
    assert (run.state, run.rows) == ("done", 11)
    assert step(run, 2) == []


def test_a_batch_is_counted_once_and_an_idle_report_only_says_how_far_behind() -> None:
    query = FakeQuery(reports=[report(0, 5, behind=9)])
    run = run_of(stage("a", query))
    for now in range(3):
        step(run, now)
    query.reports.append(report(1, 0, behind=2))
    step(run, 4)
    assert run.rows == 5
    assert run.progress == Progress(0, 5, 0.0, 0.1, 2, None)
    assert run.note == "Waiting for data to arrive"


def test_dead_letters_add_up() -> None:
    reports = [report(n, 5) | {"observedMetrics": {"m": {"dead_letters": 2}}} for n in range(2)]
    run = run_of(stage("a", finished(*reports)))
    step(run, 0)
    step(run, 1)
    assert run.dead_letters == 4


def test_a_retriable_error_is_retried_with_growing_delays() -> None:
    run = run_of(stage("a", AWAY, finished(error=AWAY), FakeQuery()))
    step(run, 0)
    assert (run.state, run.note) == ("waiting", "The broker is away. Start it. Next attempt in 1 s.")
    step(run, 0.9)
    assert run.state == "waiting"
    step(run, 1)
    step(run, 1)
    assert "Next attempt in 2 s" in run.note
    step(run, 2.9)
    assert run.state == "waiting"
    step(run, 3)
    assert run.state == "running"


def test_a_successful_batch_resets_the_delay() -> None:
    run = run_of(stage("a", AWAY, finished(report(0, 1), error=AWAY)))
    step(run, 0)
    step(run, 1)
    step(run, 1)
    assert "Next attempt in 1 s" in run.note


def test_a_run_with_once_gives_up_after_some_attempts() -> None:
    run = run_of(stage("a", *[AWAY] * ATTEMPTS_MAX_ONCE), ATTEMPTS_MAX_ONCE)
    for now in range(0, 1000, 100):
        step(run, now)
    assert (run.state, run.note) == ("failed", "The broker is away. Start it.")


def test_a_query_that_ends_by_itself_is_restarted() -> None:
    run = run_of(stage("a", finished(report(0, 3)), FakeQuery()), None)
    step(run, 0)
    step(run, 1)
    assert (run.state, run.rows) == ("waiting", 3)
    assert "The query ended by itself" in run.note
    step(run, 2)
    assert run.state == "running"


def test_an_error_that_is_not_retriable_fails_at_once_and_the_others_continue() -> None:
    wrong, good = run_of(stage("wrong", WRONG)), run_of(stage("good", finished(report(0, 3))))
    heard = Heard()
    assert not run_stages(None, [[wrong, good]], TRIGGER, heard, Event())  # type: ignore[arg-type]
    assert heard.events == ["wrong failed", "good running", "good batch 0", "good done"]
    assert closing_lines([wrong, good], stopped=False) == (
        "wrong failed: The topic is gone. Make it.\nDone: wrong 0 rows, good 3 rows."
    )


def test_a_stop_ends_all_queries_and_is_no_failure() -> None:
    queries = FakeQuery(), FakeQuery()
    runs = [run_of(stage(name, query)) for name, query in zip("ab", queries, strict=True)]
    stop = Event()
    assert run_stages(None, [runs], TRIGGER, Heard(stop, "b running"), stop)  # type: ignore[arg-type]
    assert all(query.was_stopped for query in queries)


def test_one_wave_begins_when_the_one_before_is_over() -> None:
    waves = [[run_of(stage("a", finished()))], [run_of(stage("b", finished()))]]
    heard = Heard()
    assert run_stages(None, waves, TRIGGER, heard, Event())  # type: ignore[arg-type]
    assert heard.events == ["a running", "a done", "b running", "b done"]


def test_a_run_with_once_runs_writers_before_readers() -> None:
    names = [("sources", "s"), ("sources", "r"), ("transforms", "t"), ("transforms", "u"), ("sinks", "x")]
    declared = tuple(StageDeclaration(group, name, "fake", None, FakeStage) for group, name in names)
    context = Context("p", ClusterSettings("b:1"), Path("."), "checkpoints")
    pipeline = Pipeline(Path("pipeline.toml"), context, SparkSettings(), {}, declared)
    waves = waves_of(pipeline, None, once=True)
    assert [[run.name for run in wave] for wave in waves] == [["s", "r"], ["t"], ["u"], ["x"]]
    assert [[run.name for run in wave] for wave in waves_of(pipeline, None, once=False)] == [list("srtux")]
    assert [[run.name for run in wave] for wave in waves_of(pipeline, "u", once=True)] == [["u"]]
    assert trigger_of(pipeline, once=True) == {"availableNow": True}
    assert trigger_of(pipeline, once=False) == {"processingTime": "1 second"}


def test_plain_lines_show_batches_and_changes() -> None:
    lines: list[str] = []
    display = PlainDisplay(lines.append)
    run = run_of(stage("orders", AWAY))
    step(run, 0)
    display.changed(run)
    display.batch(run, Progress(3, 1500, 3000.0, 0.5, 42, 7, late_rows=2))
    display.show([run])
    said = [line.partition(" ")[2] for line in lines]
    assert said == [
        "orders: waiting: The broker is away. Start it. Next attempt in 1 s.",
        "orders: batch 3, 1,500 rows in 0.5 s, 3,000 rows/s, 42 behind, 7 dead letters",
        "orders: warning: Batch 3: Spark dropped 2 rows that came later than the watermark allows."
        " Give `deduplicate` a longer `within`; a replay with it makes these rows again from the raw topic.",
    ]


def printed(runs: list[StageRun]) -> str:
    console = Console(width=200, force_terminal=True)
    with console.capture() as captured:
        console.print(table_of(runs))
    return captured.get()


def test_the_table_shows_every_stage_also_one_that_has_done_nothing() -> None:
    done, fresh = run_of(stage("orders", finished(report(4, 1200, behind=17)))), run_of(stage("archive"))
    step(done, 0)
    step(done, 1)
    text = printed([done, fresh])
    for part in ("STAGE", "BEHIND", "orders", "12,000", "17", "archive", "waiting: not started yet"):
        assert part in text


def test_rows_that_were_dropped_as_late_have_a_column_where_there_are_any() -> None:
    late = report(0, 5) | {"stateOperators": [{"numRowsDroppedByWatermark": 1}]}
    run, other = run_of(stage("orders", finished(late, late | {"batchId": 1}))), run_of(stage("archive"))
    assert "DROPPED LATE" not in printed([run, other])
    step(run, 0)
    step(run, 1)
    assert run.late_rows == 2
    assert "DROPPED LATE" in printed([run, other])


def test_plain_is_plain() -> None:
    console = Console(force_terminal=False)
    with display_for(console, plain=True) as display:
        assert isinstance(display, PlainDisplay)


def test_at_a_terminal_the_table_is_live_and_errors_stay_above_it() -> None:
    output = StringIO()
    console = Console(file=output, force_terminal=True, width=150, markup=False)
    wrong = run_of(stage("wrong", WRONG))
    with display_for(console, plain=False) as display:
        display.show([wrong])
        step(wrong, 0)
        display.changed(wrong)
        display.batch(wrong, Progress(0, 1, 1.0, 1.0, None, None))
        display.show([wrong])
    text = output.getvalue()
    assert text.index("waiting: not started yet") < text.index("wrong: failed: The topic is gone. Make it.")
    assert text.count("STAGE") >= 2


def test_the_class_that_spark_names_is_not_shown() -> None:
    run = run_of(stage("orders", finished(report(4, 1200))))
    run.state = "running"
    run.note = (
        "Getting offsets from org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStream@1"
    )
    assert state_of(run) == "running, getting offsets"
