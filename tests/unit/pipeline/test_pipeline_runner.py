"""The states of a stage in a run, without Spark: started, restarted, given up, stopped."""

import contextlib
import fcntl
import json
import os
import pty
import re
import struct
import termios
from collections.abc import Mapping, Sequence
from datetime import datetime
from io import StringIO
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from rich.console import Console
from tests.unit.pipeline.fake_stages import FakeQuery, FakeStage

from ottla.admin.signal_flag import SignalFlag
from ottla.pipeline import runner
from ottla.pipeline.config import Pipeline, SparkSettings, StageDeclaration, TopicSettings
from ottla.pipeline.display import Form, Output, PlainDisplay, display_for, state_of, table_of
from ottla.pipeline.errors import PermanentStageError, PipelineError, RetriableError
from ottla.pipeline.foreground import closing_lines
from ottla.pipeline.progress import Progress
from ottla.pipeline.restarts import ONCE, RestartPolicy, policy_of
from ottla.pipeline.runner import StageRun, is_ended, run_stages, shuffle_partitions, trigger_of, waves_of
from ottla.pipeline.stage import ClusterSettings, Context

TRIGGER: Mapping[str, Any] = {}
AWAY = RetriableError("The broker is away.", "Start it.")
WRONG = PipelineError("The topic is gone.", "Make it.")
TAKEN_OVER = PermanentStageError("Another run archives the topic.", "Run only one.")


@pytest.fixture(autouse=True)
def spark_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "check_spark", lambda spark, error: None)
    monkeypatch.setattr(runner, "POLL_S", 0.0)


class Heard:
    """A display that remembers, and can stop the run."""

    def __init__(self, stop: SignalFlag | None = None, when: str = "") -> None:
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


def run_of(made: FakeStage, policy: RestartPolicy = ONCE, *, is_required: bool = True) -> StageRun:
    return StageRun(made.name, made, policy, is_required=is_required)


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
    run = run_of(stage("a", *[AWAY] * 5))
    for now in range(0, 1000, 100):
        step(run, now)
    assert (run.state, run.note) == ("failed", "The broker is away. Start it.")


def test_a_query_that_ends_by_itself_is_restarted() -> None:
    run = run_of(stage("a", finished(report(0, 3)), FakeQuery()), policy_of(5))
    step(run, 0)
    step(run, 1)
    assert (run.state, run.rows) == ("waiting", 3)
    assert "The query ended by itself" in run.note
    step(run, 2)
    assert run.state == "running"


def test_a_stage_is_restarted_after_any_error_and_given_up_at_the_limit() -> None:
    run = run_of(stage("a", *[WRONG] * 3), policy_of(2))
    notes = []
    for now in (0, 1, 3):
        step(run, now)
        notes.append((run.state, run.note))
    assert notes == [
        ("waiting", "The topic is gone. Make it. Next attempt in 1 s (1 of 2)."),
        ("waiting", "The topic is gone. Make it. Next attempt in 2 s (2 of 2)."),
        ("failed", "The topic is gone. Make it."),
    ]


def test_errors_that_pass_by_themselves_do_not_count_and_a_batch_resets_the_count() -> None:
    outage = [AWAY] * 20
    run = run_of(
        stage("a", AWAY, WRONG, *outage, finished(report(0, 1), error=WRONG), FakeQuery()), policy_of(1)
    )
    for now in range(0, 3000, 60):
        step(run, now)
    assert run.state == "running"


def test_a_query_whose_poll_fails_is_stopped_before_the_stage_starts_again() -> None:
    class Unpolled(FakeQuery):
        @property
        def lastProgress(self) -> dict[str, Any] | None:
            raise OSError("Connection reset")

    lost, next_one = Unpolled(), FakeQuery()
    run = run_of(stage("a", lost, next_one), policy_of(5))
    step(run, 0)
    step(run, 1)
    assert (run.state, lost.was_stopped) == ("waiting", True)
    step(run, 2)
    assert (run.state, next_one.isActive) == ("running", True)


def test_without_a_limit_a_stage_is_never_given_up() -> None:
    run = run_of(stage("a", *[WRONG] * 50), policy_of(-1))
    for now in range(0, 3000, 60):
        step(run, now)
    assert (run.state, run.note) == ("waiting", "The topic is gone. Make it. Next attempt in 60 s.")


@pytest.mark.parametrize(
    "error",
    [
        TAKEN_OVER,
        RuntimeError(
            "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Traceback (most recent call last):\n"
            f"ottla.pipeline.errors.PermanentStageError: {TAKEN_OVER}\n"
        ),
    ],
    ids=["of a start", "of a batch, as Spark passes it on"],
)
@pytest.mark.parametrize("restarts_max", [5, -1])
def test_after_a_permanent_error_a_stage_is_given_up_at_once(error: Exception, restarts_max: int) -> None:
    run = run_of(stage("a", finished(report(0, 1), error=error), FakeQuery()), policy_of(restarts_max))
    for now in range(0, 300, 60):
        step(run, now)
    assert (run.state, run.note) == ("failed", str(TAKEN_OVER))
    assert run.ends_run


def test_a_required_stage_that_is_given_up_ends_the_run_and_stops_the_others() -> None:
    query = FakeQuery()
    runs = [
        run_of(stage("good", query), policy_of(0)),
        run_of(stage("wrong", WRONG), policy_of(0)),
    ]
    assert not run_stages(None, [runs], TRIGGER, Heard(), SignalFlag())  # type: ignore[arg-type]
    assert query.was_stopped
    assert is_ended(runs)


def test_a_stage_that_is_not_required_ends_alone() -> None:
    stop = SignalFlag()
    runs = [
        run_of(stage("wrong", WRONG), policy_of(0), is_required=False),
        run_of(stage("good", AWAY), policy_of(0)),
    ]
    heard = Heard(stop, "good waiting")
    assert not run_stages(None, [runs], TRIGGER, heard, stop)  # type: ignore[arg-type]
    assert heard.events == ["wrong failed", "good waiting"]
    assert not is_ended(runs)


def test_with_once_an_error_fails_a_stage_at_once_and_the_others_continue() -> None:
    wrong, good = run_of(stage("wrong", WRONG)), run_of(stage("good", finished(report(0, 3))))
    heard = Heard()
    assert not run_stages(None, [[wrong, good]], TRIGGER, heard, SignalFlag())  # type: ignore[arg-type]
    assert heard.events == ["wrong failed", "good running", "good batch 0", "good done"]
    assert closing_lines([wrong, good], stopped=False) == (
        "wrong failed: The topic is gone. Make it.\nDone: wrong 0 rows, good 3 rows."
    )


def test_a_stop_ends_all_queries_and_is_no_failure() -> None:
    queries = FakeQuery(), FakeQuery()
    runs = [run_of(stage(name, query)) for name, query in zip("ab", queries, strict=True)]
    stop = SignalFlag()
    assert run_stages(None, [runs], TRIGGER, Heard(stop, "b running"), stop)  # type: ignore[arg-type]
    assert all(query.was_stopped for query in queries)


def test_a_stop_silences_spark_before_it_cancels_tasks() -> None:
    query, spark, stop = FakeQuery(), mock.Mock(), SignalFlag()
    levels: list[tuple[str, bool]] = []
    spark.sparkContext.setLogLevel.side_effect = lambda level: levels.append((level, query.isActive))
    assert run_stages(spark, [[run_of(stage("a", query))]], TRIGGER, Heard(stop, "a running"), stop)
    assert levels == [("OFF", True)]


def test_a_run_that_ends_by_itself_leaves_the_log_as_it_is() -> None:
    spark = mock.Mock()
    assert run_stages(spark, [[run_of(stage("a", finished()))]], TRIGGER, Heard(), SignalFlag())
    assert not spark.sparkContext.setLogLevel.called


def test_one_wave_begins_when_the_one_before_is_over() -> None:
    waves = [[run_of(stage("a", finished()))], [run_of(stage("b", finished()))]]
    heard = Heard()
    assert run_stages(None, waves, TRIGGER, heard, SignalFlag())  # type: ignore[arg-type]
    assert heard.events == ["a running", "a done", "b running", "b done"]


def test_a_run_with_once_runs_writers_before_readers() -> None:
    names = [("sources", "s"), ("sources", "r"), ("transforms", "t"), ("transforms", "u"), ("sinks", "x")]
    declared = tuple(
        StageDeclaration(group, name, "fake", None, FakeStage, required=name != "u") for group, name in names
    )
    context = Context("p", ClusterSettings("b:1"), Path("."), "checkpoints")
    pipeline = Pipeline(Path("pipeline.toml"), context, SparkSettings(), {}, declared)
    waves = waves_of(pipeline, None, once=True)
    assert [[run.name for run in wave] for wave in waves] == [["s", "r"], ["t"], ["u"], ["x"]]
    (together,) = waves_of(pipeline, None, once=False)
    assert [(run.name, run.is_required) for run in together] == [(name, name != "u") for name in "srtux"]
    assert [[run.name for run in wave] for wave in waves_of(pipeline, "u", once=True)] == [["u"]]
    assert trigger_of(pipeline, once=True) == {"availableNow": True}
    assert trigger_of(pipeline, once=False) == {"processingTime": "1 second"}


@pytest.mark.parametrize(
    ("master", "cores", "topics", "partitions"),
    [
        ("local[4]", 4, [], 4),
        ("local[*]", 2, [-1, 12], 12),
        ("spark://host:7077", 2, [12], 32),
        ("yarn", 2, [48], 48),
        ("local[*]", 2, [1000], 200),
    ],
)
def test_a_shuffle_has_as_many_partitions_as_cores_or_as_the_largest_topic(
    master: str, cores: int, topics: list[int], partitions: int
) -> None:
    declared = {str(number): TopicSettings(partitions=count) for number, count in enumerate(topics)}
    context = Context("p", ClusterSettings("b:1"), Path("."), "checkpoints")
    pipeline = Pipeline(Path("pipeline.toml"), context, SparkSettings(), declared, ())
    spark = mock.Mock(master=master, defaultParallelism=cores)
    assert shuffle_partitions(pipeline, spark) == partitions


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
    with display_for(Output(console, Form.PLAIN)) as display:
        assert isinstance(display, PlainDisplay)


def test_programs_get_a_line_of_json_for_each_event(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output(Console(force_terminal=False), Form.JSON)
    run = run_of(stage("örders", AWAY))
    output.say("Created topic raw", "topic", created="raw")
    with display_for(output) as display:
        step(run, 0)
        display.changed(run)
        display.batch(run, Progress(3, 1500, 3000.04, 0.5, 42, 7, late_rows=2))
        display.show([run])
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert all(datetime.fromisoformat(event.pop("at")).tzinfo for event in events)
    note = "The broker is away. Start it. Next attempt in 1 s."
    assert events == [
        {"event": "topic", "created": "raw"},
        {"event": "state", "stage": "örders", "state": "waiting", "note": note},
        {
            "event": "batch",
            "stage": "örders",
            "batch": 3,
            "rows": 1500,
            "seconds": 0.5,
            "rows_per_second": 3000.0,
            "behind": 42,
            "dead_letters": 7,
            "late_rows": 2,
        },
    ]


@pytest.mark.parametrize("columns", [70, 90, 200])
def test_at_a_terminal_each_stage_has_one_line_which_fits(columns: int) -> None:
    done = run_of(stage("orders", finished(report(4, 123_456, behind=17), report(5, 1))))
    step(done, 0)
    step(done, 1)
    wrong = run_of(stage("wrong", RetriableError("The first\nline. " * 20, "Start it.")))
    step(wrong, 0)
    runs = [done, wrong, run_of(stage("a-stage-with-a-name-that-is-long-for-a-stage"))]
    shown = frame_at_terminal(runs, columns)
    assert len(shown) == 1 + len(runs), shown
    assert [line[:4] for line in shown] == ["STAG", "orde", "wron", "a-st"]
    assert all(len(line) <= columns for line in shown)
    # The numbers are never cut.
    assert "123,457" in shown[1]


def frame_at_terminal(runs: Sequence[StageRun], columns: int) -> list[str]:
    """The lines of the table, as a terminal with so many columns gets them."""
    leader, follower = pty.openpty()
    try:
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        with os.fdopen(follower, "w") as file:
            console = Console(
                file=file, highlight=False, markup=False, width=os.get_terminal_size(follower)[0]
            )
            assert console.is_terminal
            with display_for(Output(console, Form.TABLE)) as display:
                display.show(runs)
        text = read_all(leader)
    finally:
        os.close(leader)
    frame = text[text.rindex("STAGE") :]
    lines = [re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", line).rstrip() for line in frame.splitlines()]
    return [line for line in lines if line]


def read_all(leader: int) -> str:
    """What was written to the terminal, which is closed. A read returns as much as has arrived, and then fails."""
    text = b""
    with contextlib.suppress(OSError):
        while part := os.read(leader, 65_536):
            text += part
    return text.decode()


def test_at_a_terminal_the_table_is_live_and_errors_stay_above_it() -> None:
    output = StringIO()
    console = Console(file=output, force_terminal=True, width=150, markup=False)
    wrong = run_of(stage("wrong", WRONG))
    with display_for(Output(console, Form.TABLE)) as display:
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
