"""The metrics of a run: their values, their documentation, and a scrape of each format."""

import contextlib
import http.client
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open_metrics
from prometheus_client.parser import text_string_to_metric_families as parse_prometheus
from tests.unit.pipeline.fake_stages import FakeQuery, FakeStage

from ottla.metrics import OPEN_METRICS, PROMETHEUS, TextFormat, reference_table
from ottla.model.http_address import HttpAddress
from ottla.model.ids import TopicPartition
from ottla.pipeline import lag_watch, runner
from ottla.pipeline.archive.coverage import Coverage
from ottla.pipeline.archive.lag import Lag
from ottla.pipeline.archive.samples import Sample
from ottla.pipeline.errors import RetriableError
from ottla.pipeline.health import Health, serve_health
from ottla.pipeline.lag_watch import LagWatch, StageLag
from ottla.pipeline.metrics import FAMILIES, SECTIONS, STATES, RunState, text_of
from ottla.pipeline.restarts import policy_of
from ottla.pipeline.runner import StageRun
from ottla.pipeline.stage import ClusterSettings
from ottla.pipeline.written_bytes import WrittenBytes

PAGE = (Path(__file__).parents[3] / "docs" / "pipeline" / "metrics.md").read_text()
NOW_S = 1_000_000.0
CLUSTER = ClusterSettings("127.0.0.1:9")


class FakeArchive(FakeStage):
    def lags(self) -> Sequence[Lag]:
        return [
            Lag(TopicPartition("raw", 0), 600, 5, 0.25, 7200.0),
            Lag(TopicPartition("raw", 1), 0, 0),
        ]

    def coverage(self) -> Sequence[Coverage]:
        return [
            Coverage(TopicPartition("raw", 0), 1000, 400, 2, 7),
            Coverage(TopicPartition("raw", 1), 0, 0, 0, 0),
        ]


def report(batch: int, rows: int, **more: Any) -> dict[str, Any]:
    end = {"raw": {"0": 10 * (batch + 1)}}
    return {
        "batchId": batch,
        "numInputRows": rows,
        "durationMs": {"triggerExecution": 500, "addBatch": 375},
        "sources": [{"endOffset": end, "latestOffset": end}],
        **more,
    }


def stepped(made: FakeStage, monkeypatch: pytest.MonkeyPatch, steps: int = 2) -> StageRun:
    monkeypatch.setattr(runner, "check_spark", lambda spark, error: None)
    run = StageRun(made.name, made, policy_of(5))
    for now in range(steps):
        run.step(None, {}, float(now))  # type: ignore[arg-type]
    return run


def samples(
    runs: Sequence[StageRun], lags: Mapping[str, StageLag] | None = None, form: TextFormat = PROMETHEUS
) -> dict[tuple[str, ...], float]:
    """By name and values of the labels, as Prometheus' own parsers read them."""
    text = text_of(RunState(runs, lags or {}, True, False, NOW_S), form)
    parse = parse_prometheus if form is PROMETHEUS else parse_open_metrics
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in parse(text)
        for sample in family.samples
    }


@pytest.mark.parametrize("section", SECTIONS)
def test_every_metric_is_documented(section: str) -> None:
    text = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    table = reference_table(SECTIONS[section])
    assert table in text, f"replace the table by:\n{table}"


def test_every_documented_metric_exists() -> None:
    assert re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE) == [family.name for family in FAMILIES]
    used = set(re.findall(r"\bottla_pipeline_\w+", PAGE))
    assert used <= {family.name for family in FAMILIES}


@pytest.mark.parametrize("form", [PROMETHEUS, OPEN_METRICS])
def test_batches_are_counted_with_their_rows_times_and_state(
    form: TextFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = {"numRowsTotal": 7, "memoryUsedBytes": 1000, "numRowsDroppedByWatermark": 1}
    more = {"observedMetrics": {"a.dead_letters": {"dead_letters": 2}}, "stateOperators": [state]}
    made = FakeStage("a")
    made.queries = [FakeQuery(reports=[report(0, 10), report(1, 20, **more)])]
    before_s = time.time()
    found = samples([stepped(made, monkeypatch)], form=form)
    for name, value in {
        "rows_total": 30,
        "rows_per_second": 40,
        "dead_letters_total": 2,
        "late_rows_total": 1,
        "restarts_total": 0,
        "batch": 1,
        "batch_duration_seconds_sum": 1.0,
        "batch_duration_seconds_count": 2,
        "state_rows": 7,
        "state_bytes": 1000,
    }.items():
        assert found[f"ottla_pipeline_{name}", "a"] == value, name
    assert found["ottla_pipeline_batch_phase_seconds_total", "a", "addBatch"] == 0.75
    assert before_s <= found["ottla_pipeline_last_batch_timestamp_seconds", "a"] <= time.time()
    assert found["ottla_pipeline_live",] == 1
    assert found["ottla_pipeline_ready",] == 0


def test_a_stage_that_has_not_started_has_a_state_and_counters_alone() -> None:
    found = samples([StageRun("a", FakeStage("a"), policy_of(5))])
    states = {name[2]: value for name, value in found.items() if name[0] == "ottla_pipeline_stage_state"}
    assert states == {state: float(state == "waiting") for state in STATES}
    assert {name[0].removeprefix("ottla_pipeline_") for name in found} == {
        "live",
        "ready",
        "stage_state",
        "restarts_total",
        "rows_total",
        "late_rows_total",
        "batch_duration_seconds_sum",
        "batch_duration_seconds_count",
    }


def test_restarts_are_counted_and_a_stage_that_waits_has_no_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    made = FakeStage("a")
    away = RetriableError("The broker is away.", "Start it.")
    made.queries = [FakeQuery(isActive=False, error=away, reports=[report(0, 10)]), FakeQuery()]
    run = stepped(made, monkeypatch)
    found = samples([run])
    assert found["ottla_pipeline_restarts_total", "a"] == 1
    assert found["ottla_pipeline_stage_state", "a", "waiting"] == 1
    assert found["ottla_pipeline_rows_per_second", "a"] == 0
    # The start after the pause
    run.step(None, {}, 100.0)  # type: ignore[arg-type]
    found = samples([run])
    assert found["ottla_pipeline_restarts_total", "a"] == 1
    assert found["ottla_pipeline_stage_state", "a", "running"] == 1


def test_the_archive_has_samples_for_each_partition() -> None:
    found = samples([StageRun("archive", FakeArchive("archive"), policy_of(5))])
    at = ("archive", "raw", "0")
    assert found["ottla_pipeline_archive_behind_records", *at] == 600
    assert found["ottla_pipeline_archive_lost_offsets", *at] == 5
    assert found["ottla_pipeline_archive_retention_used_ratio", *at] == 0.25
    assert found["ottla_pipeline_archive_retention_left_seconds", *at] == 7200
    assert ("ottla_pipeline_archive_retention_left_seconds", "archive", "raw", "1") not in found
    assert found["ottla_pipeline_archive_topic_offsets", *at] == 1000
    assert found["ottla_pipeline_archive_covered_offsets", *at] == 400
    assert found["ottla_pipeline_archive_coverage_ratio", *at] == 0.4
    assert found["ottla_pipeline_archive_holes", *at] == 2
    assert found["ottla_pipeline_archive_hole_offsets", *at] == 7
    assert found["ottla_pipeline_archive_coverage_ratio", "archive", "raw", "1"] == 1


def test_the_bytes_of_a_stage_are_those_that_were_counted_by_its_last_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, written = FakeStage("a"), WrittenBytes(tmp_path / "a")
    made.queries = [FakeQuery(reports=[report(0, 10)])]
    monkeypatch.setattr(runner, "check_spark", lambda spark, error: None)
    run = StageRun("a", made, policy_of(5), written=written)
    name = ("ottla_pipeline_written_bytes_total", "a")
    assert samples([run])[name] == 0
    written.add(1234)
    run.step(None, {}, 0.0)  # type: ignore[arg-type]
    assert samples([run])[name] == 0
    run.step(None, {}, 1.0)  # type: ignore[arg-type]
    assert samples([run])[name] == 1234
    # A run that nobody asks counts none.
    assert name not in samples([StageRun("a", made, policy_of(5))])


@pytest.mark.parametrize(
    ("position", "oldest_ms", "records", "seconds"),
    [
        (10, None, 0, 0.0),
        (5, int((NOW_S - 60) * 1000), 5, 60.0),
        # A clock of a producer that is ahead
        (5, int((NOW_S + 60) * 1000), 5, 0.0),
        # Only markers of transactions are left
        (9, None, 1, None),
        # The stage has gone on since the measurement
        (12, int((NOW_S - 60) * 1000), 0, 0.0),
    ],
)
def test_the_lag_in_seconds_is_the_age_of_the_oldest_record(
    position: int, oldest_ms: int | None, records: int, seconds: float | None
) -> None:
    run = StageRun("a", FakeStage("a"), policy_of(5))
    run.position = {"raw": {0: position}}
    found = samples([run], {"a": StageLag({"raw": {0: 10}}, oldest_ms)})
    assert found["ottla_pipeline_lag_records", "a"] == records
    assert found.get(("ottla_pipeline_lag_seconds", "a")) == seconds


def test_the_lag_is_measured_from_the_position_and_is_unknown_while_no_broker_responds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []

    def first_records(cluster: ClusterSettings, starts: Mapping[TopicPartition, int]) -> Any:
        asked.append(dict(starts))
        return {at: [Sample(5000 - at.partition, 1)] for at in starts}

    monkeypatch.setattr(lag_watch, "connect", lambda settings: object())
    monkeypatch.setattr(lag_watch, "end_offsets", lambda cluster, topics: {"raw": {0: 15, 1: 2, 2: 0}})
    monkeypatch.setattr(lag_watch, "first_records", first_records)
    made, idle = FakeStage("a"), FakeStage("idle")
    made.queries = [FakeQuery(reports=[report(0, 10)])]
    run = stepped(made, monkeypatch)
    watch = LagWatch(CLUSTER, [run, StageRun("idle", idle, policy_of(5))])
    watch.measure()
    assert asked == [{TopicPartition("raw", 0): 10, TopicPartition("raw", 1): 0}]
    assert watch.lags == {"a": StageLag({"raw": {0: 15, 1: 2, 2: 0}}, 4999)}
    assert run.position is not None
    assert watch.lags["a"].records(run.position) == 7

    def fail(*_: object) -> Any:
        raise RetriableError("No broker responds.", "Start one.")

    monkeypatch.setattr(lag_watch, "end_offsets", fail)
    watch.measure()
    assert watch.lags == {}


def test_the_lag_is_measured_until_the_run_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = LagWatch(CLUSTER, [])
    counted = iter(range(1_000_000))
    monkeypatch.setattr(watch, "measure", lambda: next(counted))
    with watch.measuring(every_s=0.0):
        deadline_s = time.monotonic() + 30
        while next(counted) < 4:
            assert time.monotonic() < deadline_s


def test_a_scrape_gets_the_format_that_it_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    made = FakeStage('a "b"\\')
    made.queries = [FakeQuery(reports=[report(0, 10)])]
    health = Health([stepped(made, monkeypatch)], lags=lambda: {made.name: StageLag({}, None)})
    with serve_health(HttpAddress("127.0.0.1", 0), health) as url:
        kind, text = get(url, "text/plain")
        assert kind == PROMETHEUS.content_type
        assert {family.name for family in parse_prometheus(text)} >= {"ottla_pipeline_rows"}
        kind, text = get(url, "application/openmetrics-text; version=1.0.0,text/plain;q=0.5")
        assert kind == OPEN_METRICS.content_type
        (family,) = [one for one in parse_open_metrics(text) if one.name == "ottla_pipeline_rows"]
        assert [(sample.labels["stage"], sample.value) for sample in family.samples] == [(made.name, 10)]


def test_silent_connections_end_and_others_than_the_first_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    health = Health([])
    with serve_health(HttpAddress("127.0.0.1", 0), health) as url:
        address = urlsplit(url).netloc
        silent = [http.client.HTTPConnection(address, timeout=10) for _ in range(16)]
        for connection in silent:
            # Kept open by the client
            connection.request("GET", "/healthz")
            assert connection.getresponse().read()
        extra = http.client.HTTPConnection(address, timeout=10)
        with contextlib.suppress(OSError):
            extra.request("GET", "/healthz")
        with pytest.raises((http.client.HTTPException, OSError)):
            extra.getresponse()
        extra.close()
        for connection in silent:
            connection.close()
        deadline_s = time.monotonic() + 30
        while True:
            try:
                assert "ottla_pipeline_live" in get(url, "")[1]
                break
            except (http.client.HTTPException, OSError):
                assert time.monotonic() < deadline_s


def get(url: str, accept: str) -> tuple[str | None, str]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=10)
    try:
        connection.request("GET", "/metrics", headers={"Accept": accept})
        response = connection.getresponse()
        assert response.status == 200
        return response.getheader("Content-Type"), response.read().decode()
    finally:
        connection.close()
