"""Files of a spool directory through Spark into a topic: byte for byte, each record once, also when the driver dies."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from tests.interop.brokers import RunningBroker
from tests.pipeline.spooldir_runs import SMALL, Read, make_topic, read_topic, run_once, stage_in

from ottla.pipeline.query_errors import summarize
from ottla.pipeline.stage import ClusterSettings, Context

ROOT = Path(__file__).parents[2]
LONG_BYTES = 10 * 1024 * 1024


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    folder = tmp_path / "spool"
    folder.mkdir()
    return folder


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def wait_until(condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    give_up = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < give_up, "it did not come true in time"
        time.sleep(0.05)


def test_lines_of_any_bytes_arrive_with_their_file_line_and_position(
    spark: SparkSession, broker: RunningBroker, context: Context, spool: Path, topic_name: str
) -> None:
    """Invalid UTF-8, NULs, empty lines, 10 MB in one line, an end without a line feed, an empty file."""
    make_topic(broker.bootstrap, topic_name, max_message_bytes=str(LONG_BYTES + 100_000))
    long = bytes(range(1, 10)) * (LONG_BYTES // 9)
    lines = [b"plain", b"", b"\xff\xfe\x00\x80", b"windows\r", long, b"", b"no end"]
    (spool / "a.log").write_bytes(b"\n".join(lines))
    (spool / "empty.log").write_bytes(b"")
    (spool / "unfinished.tmp").write_bytes(b"not yet\n")
    stage = stage_in(context, topic_name, max_record_bytes=LONG_BYTES, key="file")
    assert list(stage.check()) == []
    run_once(spark, stage)
    starts = [sum(len(line) + 1 for line in lines[:at]) for at in range(len(lines))]
    assert read_topic(broker.bootstrap, topic_name) == [
        Read("a.log", at + 1, starts[at], line, b"a.log") for at, line in enumerate(lines)
    ]
    assert names(spool) == ["a.log.done", "empty.log.done", "unfinished.tmp"]


def test_a_topic_that_is_missing_or_has_too_small_a_limit_is_reported(
    broker: RunningBroker, context: Context, spool: Path, topic_name: str
) -> None:
    stage = stage_in(context, topic_name, max_record_bytes=2_000_000, after="move")
    assert [finding.what for finding in stage.check()] == [
        '`after` is "move", but there is no `done_folder`.',
        f"The topic {topic_name} does not exist.",
    ]
    made = replace(context, topics=frozenset([topic_name]))
    assert list(stage_in(made, topic_name).check()) == []
    make_topic(broker.bootstrap, topic_name)
    (finding,) = stage_in(context, topic_name, max_record_bytes=2_000_000).check()
    assert finding.what.endswith(f"the topic {topic_name} accepts messages of at most 1048588 bytes.")
    assert finding.remedy.startswith("Set the topic's max.message.bytes to 2010000 or more")
    away = replace(context, cluster=ClusterSettings("127.0.0.1:1"))
    (finding,) = stage_in(away, topic_name).check()
    assert finding.what.startswith(f"The topic {topic_name} cannot be checked: ")


def test_whole_files_and_delimiters_in_many_batches(
    spark: SparkSession, broker: RunningBroker, context: Context, spool: Path, topic_name: str
) -> None:
    make_topic(broker.bootstrap, topic_name)
    records = [os.urandom(40).replace(b"\xff", b"") for _ in range(300)]
    (spool / "a").write_bytes(b"\xff\xff".join(records))
    stage = stage_in(
        context,
        topic_name,
        format="delimiter",
        delimiter="hex:ffff",
        split_bytes=2_000,
        max_record_bytes=100,
        max_bytes_per_batch=4 * 66_000,
        after="delete",
    )
    run_once(spark, stage)
    whole = {"format": "file", "after": "move", "done_folder": "done"}
    (spool / "b").write_bytes(b"one\ntwo\n")
    run_once(spark, stage_in(context, topic_name, **whole))
    read = read_topic(broker.bootstrap, topic_name)
    assert [record.value for record in read] == [*records, b"one\ntwo\n"]
    assert [record.line for record in read] == [*range(1, 301), 1]
    assert (names(spool), names(spool.parent / "done")) == ([], ["b"])


def test_a_running_query_takes_new_files_and_finishes_them_without_waiting_for_more(
    spark: SparkSession, broker: RunningBroker, context: Context, spool: Path, topic_name: str
) -> None:
    make_topic(broker.bootstrap, topic_name)
    query = stage_in(context, topic_name, settle_s=0.1).start(spark, {"processingTime": "100 milliseconds"})
    try:
        for number in range(2):
            (spool / ".a").write_bytes(b"%d\n" % number)
            (spool / ".a").rename(spool / "a")
            wait_until(lambda: not (spool / "a").exists() or query.exception() is not None)
    finally:
        query.stop()
    assert query.exception() is None
    assert [record.value for record in read_topic(broker.bootstrap, topic_name)] == [b"0", b"1"]
    assert names(spool) == ["a.2.done", "a.done"]


def test_an_error_of_a_file_passes_through_spark_with_its_text_and_can_be_fixed(
    spark: SparkSession, broker: RunningBroker, context: Context, spool: Path, topic_name: str
) -> None:
    make_topic(broker.bootstrap, topic_name)
    (spool / "a").write_bytes(b"short\n")
    (spool / "b").write_bytes(b"x\n" + b"long" * 10 + b"\n")
    os.utime(spool / "a", (1, 1))
    with pytest.raises(StreamingQueryException) as raised:
        run_once(spark, stage_in(context, topic_name, max_record_bytes=20))
    assert summarize(raised.value).sentence == (
        f"Record 2 of the file {spool}/b, at byte 2, is longer than 20 bytes."
        " Raise `max_record_bytes` and the topic's max.message.bytes, and start again."
    )
    run_once(spark, stage_in(context, topic_name))
    assert [record.value for record in read_topic(broker.bootstrap, topic_name)] == [
        b"short",
        b"x",
        b"long" * 10,
    ]


@pytest.mark.timeout(900)
def test_a_driver_killed_while_it_reads_and_while_it_finishes_files_writes_each_record_once(
    spark: SparkSession, broker: RunningBroker, context: Context, spool: Path, topic_name: str
) -> None:
    make_topic(broker.bootstrap, topic_name)
    expected = []
    for name, count in (("a", 6_000), ("b", 500), ("c", 4_000)):
        lines = [b"%s-%096d" % (name.encode(), number) for number in range(count)]
        (spool / name).write_bytes(b"".join(line + b"\n" for line in lines))
        os.utime(spool / name, (ord(name), ord(name)))
        expected += [Read(name, at + 1, at * 99, line, None) for at, line in enumerate(lines)]
    for step in ("reading", "renamed"):
        command = [sys.executable, "-m", "tests.pipeline.spooldir_runs", broker.bootstrap, context.pipeline]
        command += [str(context.folder), topic_name, step]
        driver = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
        assert driver.returncode == -signal.SIGKILL, driver.stderr
    run_once(spark, stage_in(context, topic_name, **SMALL))
    assert read_topic(broker.bootstrap, topic_name) == expected
    assert names(spool) == ["a.done", "b.done", "c.done"]
