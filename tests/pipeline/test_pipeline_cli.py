"""A pipeline from `init` to `sql`, as a person types it, on a real broker and real Spark."""

import contextlib
import http.client
import json
import os
import pty
import signal
import subprocess
import time
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open_metrics
from prometheus_client.parser import text_string_to_metric_families as parse_prometheus
from pyspark.sql import SparkSession
from tests.interop.brokers import RunningBroker, run_ottla
from tests.pipeline.archiving import make_topic, produce, run_all, sink, some_records
from tests.pipeline.pipeline_command import COMMAND, TIMEOUT_S, Running, ottla, ottla_asking, running
from tests.pipeline.transforming import read_topic
from tests.pipeline.written_topics import wait_for

from ottla.pipeline.archive.ownership import claim_topics
from ottla.pipeline.archive.store import Archive
from ottla.pipeline.stage import Context

WAIT_S = 120
STAGES = ("files", "orders", "archive")
GOOD = '{"id": %d, "customer": "ada", "item": "pears", "quantity": 2, "price": 0.8}'
ENDLESS = "this line takes for ever"
# A Python worker that is busy when the run is stopped. It sends its rows in large pieces until nobody takes them.
BUSY = f"""
import time
from pathlib import Path
import pyarrow as pa

quick_orders = orders

def orders(raw):
    rows = raw.mapInArrow(work, raw.schema)
    return quick_orders(rows.where("value not like '%{ENDLESS}%'"))

def work(batches):
    for batch in batches:
        yield batch
        while b"{ENDLESS}" in batch.column("value").to_pylist():
            Path("MARK").touch()
            yield pa.concat_batches([batch] * 5000)
            time.sleep(0.02)
"""


@pytest.fixture
def own_broker(tmp_path: Path) -> RunningBroker:  # type: ignore[misc]
    """Of this test alone: the topics of `init` have fixed names, and one test kills it."""
    with run_ottla(tmp_path / "broker") as broker:
        yield broker


@pytest.fixture
def folder(tmp_path: Path, own_broker: RunningBroker) -> Path:
    """A pipeline as `init` writes it, in a small Spark."""
    folder = tmp_path / "orders"
    said = ottla("pipeline", "init", str(folder), "--bootstrap", own_broker.bootstrap)
    assert f"Wrote {folder / 'pipeline.toml'}" in said
    file = folder / "pipeline.toml"
    text = (
        file.read_text().replace("local[*]", "local[2]").replace('every = "10 seconds"', 'every = "1 second"')
    )
    file.write_text(text.replace("conf = {", 'conf = { "spark.ui.enabled" = false,'))
    return folder


def spool(folder: Path, name: str, *lines: str) -> None:
    unfinished = folder / "spool" / f".{name}"
    unfinished.write_text("".join(f"{line}\n" for line in lines))
    unfinished.rename(folder / "spool" / name)


def ids(broker: RunningBroker, topic: str) -> list[int]:
    return sorted(json.loads(record.value or b"")["id"] for record in read_topic(broker.bootstrap, topic))


def test_from_init_through_a_submitted_run_to_a_query_in_sql(
    spark: SparkSession, folder: Path, own_broker: RunningBroker
) -> None:
    at = ("--file", str(folder))
    spool(folder, "more.jsonl", GOOD % 3, "this is no order", GOOD % 4)
    assert "no errors found" in ottla("pipeline", "validate", *at)
    ran = ottla("pipeline", "submit", "--run", "--once", *at, "--", "--conf", "spark.locality.wait=0")
    assert "Created topic raw" in ran
    assert "Done: files 5 rows, orders 5 rows, archive 5 rows." in ran
    assert ids(own_broker, "orders") == [1, 2, 3, 4]
    (dead,) = read_topic(own_broker.bootstrap, "orders-dead")
    assert dead.value == b"this is no order"
    assert dead.origin[0] == "raw"

    lines = [json.loads(line) for line in ottla("pipeline", "status", "--json", *at).splitlines()]
    assert [(line["stage"], line["batch"], line["behind"]) for line in lines] == [
        ("files", 0, None),
        ("orders", 0, 0),
        ("archive", 0, 0),
    ]
    query = "select count(*) n, max(value) v from archive"
    asked = ottla_asking(spark, "pipeline", "sql", "--engine", "spark", query, "--json", *at)
    (row,) = [json.loads(line) for line in asked.splitlines()]
    assert (row["n"], row["v"][:8]) == (5, '{"id": 4')


def test_small_files_of_past_hours_are_merged(
    spark: SparkSession, broker: RunningBroker, context: Context, topic_name: str
) -> None:
    make_topic(broker.bootstrap, topic_name, partitions=1)
    produce(broker.bootstrap, topic_name, some_records(2, partitions=1))
    run_all(spark, sink(context, topic_name, max_offsets_per_batch=1))
    (context.folder / "pipeline.toml").write_text(
        f'cluster = {{ bootstrap = "{broker.bootstrap}" }}\n'
        f'[sinks.archive]\ntopics = ["{topic_name}"]\npath = "archive"\n'
    )
    said = ottla_asking(spark, "pipeline", "merge", "--file", str(context.folder))
    hour = f"{topic_name}/date=2026-01-31/hour=22"
    assert said.splitlines() == [f"archive: {hour}: 2 files are 1, 2 records"]


def test_the_command_of_spark_submit_is_printed_for_another_cluster(folder: Path) -> None:
    at = ("--master", "spark://host:7077", "--file", str(folder))
    line = ottla("pipeline", "submit", *at, "--", "--num-executors", "2")
    for part in ("spark-submit --master spark://host:7077", ".zip,", "transforms.py", "--num-executors 2"):
        assert part in line


def test_a_run_survives_a_broker_that_is_killed_and_sigterm_loses_nothing(
    folder: Path, own_broker: RunningBroker, tmp_path: Path
) -> None:
    arguments = ("--plain", "--metrics", "127.0.0.1:0", "--file", str(folder))
    is_busy = tmp_path / "busy"
    with (folder / "transforms.py").open("a") as file:
        file.write(BUSY.replace("MARK", str(is_busy)))
    with running(tmp_path / "output", "pipeline", "run", *arguments) as run:
        wait_for_rows(run, "orders", 2)
        wait_for_rows(run, "archive", 2)
        wait_for(lambda: status_of(run, "/readyz") == 200)
        # The lag is measured in intervals.
        wait_for(lambda: metrics_of(run).get(("lag_records", "archive")) == 0, WAIT_S)
        check_metrics(metrics_of(run))
        check_bytes(metrics_of(run), folder, own_broker)
        so_far = len(run.text())
        own_broker.kill()
        spool(folder, "more.jsonl", *(GOOD % number for number in range(3, 50)))
        run.wait_for(": waiting: ", "Next attempt in", since=so_far)
        wait_for(lambda: status_of(run, "/readyz") == 503)
        assert status_of(run, "/healthz") == 200
        assert metrics_of(run)["ready",] == 0
        assert any(metrics_of(run).get(("restarts_total", stage)) for stage in STAGES)
        wait_for(lambda: ("lag_records", "archive") not in metrics_of(run), WAIT_S)
        assert metrics_of(run)["rows_total", "archive"] == 2
        own_broker.start()
        wait_for_rows(run, "orders", 49)
        wait_for(lambda: metrics_of(run).get(("lag_records", "orders")) == 0, WAIT_S)
        assert metrics_of(run)["rows_total", "orders"] == 49
        so_far = len(run.text())
        spool(folder, "endless.jsonl", ENDLESS)
        wait_for(is_busy.exists, WAIT_S)
        assert run.end(signal.SIGTERM) == 0
        printed = run.text()[so_far:]
        assert "Stopped: " in printed
        # The worker found its connection closed.
        assert "Traceback" not in printed
    assert ids(own_broker, "orders") == list(range(1, 50))


def test_a_run_whose_required_stage_is_given_up_ends_with_exit_code_1(
    broker: RunningBroker, tmp_path: Path, topic_name: str
) -> None:
    make_topic(broker.bootstrap, topic_name, partitions=1)
    produce(broker.bootstrap, topic_name, some_records(1, partitions=1))
    (tmp_path / "pipeline.toml").write_text(
        f'cluster = {{ bootstrap = "{broker.bootstrap}" }}\n'
        '[spark]\nmaster = "local[2]"\nconf = { "spark.ui.enabled" = false }\n'
        f'[sinks.archive]\ntopics = ["{topic_name}"]\npath = "archive"\nevery = "1 second"\n'
    )
    with running(tmp_path / "output", "pipeline", "run", "--plain", "--file", str(tmp_path)) as run:
        wait_for_rows(run, "archive", 1)
        # As another pipeline does when it starts.
        claim_topics(Archive.at(str(tmp_path / "archive")), [topic_name])
        produce(broker.bootstrap, topic_name, some_records(1, partitions=1))
        assert run.process.wait(TIMEOUT_S) == 1, run.text()
        assert f"archive failed: This run no longer archives the topic {topic_name}" in run.text()


def check_metrics(found: dict[tuple[str, ...], float]) -> None:
    """Of the two records of the sample data, when all stages have processed them."""
    for stage in STAGES:
        assert found["rows_total", stage] == 2
        assert found["stage_state", stage, "running"] == 1
        assert found["restarts_total", stage] == 0
        assert found["batch_duration_seconds_count", stage] >= 1
        phases = [value for name, value in found.items() if name[:2] == ("batch_phase_seconds_total", stage)]
        assert 0 < sum(phases) <= found["batch_duration_seconds_sum", stage] * 1.01
    assert found["ready",] == found["live",] == 1
    assert found["dead_letters_total", "orders"] == 0
    assert found["lag_seconds", "archive"] == 0
    # A spool directory has no records that are waiting.
    assert ("lag_records", "files") not in found
    for metric in ("archive_behind_records", "archive_coverage_ratio"):
        assert {name[1:3] for name in found if name[0] == metric} == {("archive", "raw")}
    assert not any(value for name, value in found.items() if name[0] == "archive_holes")


def check_bytes(found: dict[tuple[str, ...], float], folder: Path, broker: RunningBroker) -> None:
    """A transform writes the records that it rejects too."""

    def size_of(*topics: str) -> int:
        return sum(
            len(record.key or b"")
            + len(record.value or b"")
            + sum(len(name) + len(value) for name, value in record.headers.items())
            for topic in topics
            for record in read_topic(broker.bootstrap, topic)
        )

    archived = Archive.at(str(folder / "archive")).load()
    assert found["written_bytes_total", "files"] == size_of("raw") > 0
    assert found["written_bytes_total", "orders"] == size_of("orders", "orders-dead") > 0
    assert found["written_bytes_total", "archive"] == sum(file.bytes for file in archived.files.values()) > 0


def metrics_of(run: Running) -> dict[tuple[str, ...], float]:
    """By name without its prefix, and values of the labels, in both formats."""
    plain, _ = response_of(run, "/metrics")
    openly, _ = response_of(run, "/metrics", "application/openmetrics-text")
    read = [
        {(sample.name.removeprefix("ottla_pipeline_"), *sample.labels.values()): sample.value}
        for text, parse in ((plain, parse_prometheus), (openly, parse_open_metrics))
        for family in parse(text)
        for sample in family.samples
    ]
    return {name: value for sample in read for name, value in sample.items()}


def status_of(run: Running, path: str) -> int:
    return response_of(run, path)[1]


def response_of(run: Running, path: str, accept: str = "*/*") -> tuple[str, int]:
    address = run.text().partition("Health: http://")[2].partition("/")[0]
    connection = http.client.HTTPConnection(address, timeout=30)
    try:
        connection.request("GET", path, headers={"Accept": accept})
        response = connection.getresponse()
        return response.read().decode(), response.status
    finally:
        connection.close()


def wait_for_rows(run: Running, stage: str, count: int) -> None:
    """Until the batches of a stage have so many rows together; they may come in several."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        lines = [line for line in run.text().splitlines() if f" {stage}: batch " in line]
        if sum(int(line.split(", ")[1].split()[0]) for line in lines) >= count:
            return
        assert run.process.poll() is None, run.text()
        assert time.monotonic() < deadline, run.text()
        time.sleep(0.1)


def test_a_terminal_gets_a_table_and_a_pipe_gets_lines_of_json(folder: Path, tmp_path: Path) -> None:
    arguments = ("pipeline", "run", "--once", "--file", str(folder))
    shown = shown_at_terminal(*arguments)
    assert "Created topic raw" in shown
    assert "BATCH TIME" in shown
    assert "Done: files 2 rows, orders 2 rows, archive 2 rows." in shown
    # Spark's output would break the table.
    assert "WARN" not in shown
    assert (folder / "spark.log").exists()

    spool(folder, "more.jsonl", GOOD % 3, "this is no order")
    events = [json.loads(line) for line in ottla(*arguments).splitlines()]
    assert events[0]["event"] == "start"
    orders = [event for event in events if event["event"] == "batch" and event["stage"] == "orders"]
    assert (sum(batch["rows"] for batch in orders), orders[-1]["dead_letters"]) == (2, 1)
    assert {(event["stage"], event["state"]) for event in events if event["event"] == "state"} == {
        (stage, state) for stage in STAGES for state in ("running", "done")
    }
    end = events[-1]
    assert (end["event"], end["stopped"], [stage["rows"] for stage in end["stages"]]) == (
        "end",
        False,
        [2] * 3,
    )


def shown_at_terminal(*arguments: str) -> str:
    """All that a command prints whose stdout and stderr are a terminal."""
    leader, follower = pty.openpty()
    process = subprocess.Popen([*COMMAND, *arguments], stdin=follower, stdout=follower, stderr=follower)
    os.close(follower)
    parts = []
    try:
        # The end of the last process that has the terminal is an error here.
        with contextlib.suppress(OSError):
            while part := os.read(leader, 65_536):
                parts.append(part)
        assert process.wait(TIMEOUT_S) == 0, b"".join(parts).decode(errors="replace")
    finally:
        os.close(leader)
        process.kill()
        process.wait()
    return b"".join(parts).decode(errors="replace")


def test_validate_reports_all_errors_at_once(folder: Path) -> None:
    file = folder / "pipeline.toml"
    text = file.read_text().replace('folder = "spool"', 'folder = "nowhere"').replace("py:orders", "py:order")
    file.write_text(text.replace('to = "orders"', 'to = "unknown"'))
    said = ottla("pipeline", "validate", "--file", str(folder), fails_with=1)
    assert "[sources.files]" in said
    assert "nowhere" in said
    assert "transforms.py has no function `order`. Did you mean `orders`?" in said
    assert "The topic unknown does not exist." in said
    assert ottla("pipeline", "run", "--file", str(folder), fails_with=1) == said


def test_a_cluster_that_is_down_is_one_error(folder: Path, own_broker: RunningBroker) -> None:
    own_broker.kill()
    said = ottla("pipeline", "validate", "--file", str(folder), fails_with=1)
    assert said.splitlines() == [
        f"error: [cluster]: No broker responds at {own_broker.bootstrap}. "
        "Start one, or fix `bootstrap` in [cluster]."
    ]


def test_errors_of_a_file_are_reported_with_their_lines(folder: Path) -> None:
    file = folder / "pipeline.toml"
    file.write_text(
        file.read_text().replace("master =", "mister =").replace('kind = "spooldir"', 'kind = "spool"')
    )
    said = ottla("pipeline", "validate", "--file", str(folder), fails_with=1).splitlines()
    assert len(said) == 2
    assert "[spark] does not know the setting `mister`. Did you mean `master`?" in said[0]
    assert ", line " in said[1]
    assert "There is no kind 'spool' of sources." in said[1]
    assert "[spark]" in ottla("pipeline", "status", "--file", str(folder), fails_with=1)


def test_init_overwrites_nothing(folder: Path) -> None:
    assert "exists already" in ottla("pipeline", "init", str(folder), fails_with=1)
