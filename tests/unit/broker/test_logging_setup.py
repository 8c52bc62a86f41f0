"""The broker's log: one JSON object per line, and no wait for whoever reads it."""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.broker import logging_setup
from ottla.broker.logging_setup import PipeHandler, configure_logging

logger = logging.getLogger("ottla.broker")


@pytest.fixture(autouse=True)
def _loggers_as_before() -> Iterator[None]:
    root = logging.getLogger("ottla")
    before = root.handlers[:], root.level, root.propagate
    yield
    root.handlers[:], root.level, root.propagate = before


def test_each_line_is_a_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("json", "info")
    logger.debug("not shown")
    logger.info("topic %s\nhas ü", "orders")
    try:
        raise ValueError("broken")
    except ValueError:
        logger.exception("it failed")
    first, second = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert first.keys() == {"time", "level", "logger", "message"}
    assert (first["level"], first["logger"], first["message"]) == (
        "info",
        "ottla.broker",
        "topic orders\nhas ü",
    )
    assert second["level"] == "error"
    assert second["exception"].startswith("Traceback")
    assert second["exception"].endswith("ValueError: broken")


def test_nobody_waits_for_a_reader_that_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging_setup, "_LINES_MAX", 100)
    reader, writer = os.pipe()
    lines = 2_000  # far more than a pipe and the queue hold
    with os.fdopen(reader, encoding="utf-8") as output, os.fdopen(writer, "w", encoding="utf-8") as stream:
        handler = PipeHandler(stream)
        handler.setFormatter(logging.Formatter("%(message)s"))
        for number in range(lines):
            handler.handle(logging.makeLogRecord({"msg": f"{number:0100}"}))
        found = [output.readline()]
        while handler._lines.qsize() > 90:  # until there is room for another line
            found.append(output.readline())
        handler.handle(logging.makeLogRecord({"msg": "last"}))
        while found[-1] != "last\n":
            found.append(output.readline())
        handler.flush()
    assert found[0] == f"{0:0100}\n"
    assert any("lines of the log were dropped: nobody read stderr" in line for line in found)
    assert len(found) < lines


@pytest.mark.slow
def test_a_broker_and_the_nodes_of_a_cluster_write_json(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "ottla.cli.main"]
    commands = {
        "serve": [*program, "serve", "--log-format", "json", "--data", str(tmp_path / "one")],
        "cluster": [*program, "cluster", "up", "--nodes", "1", "--data", str(tmp_path / "cluster")],
    }
    commands["cluster"] += ["--set", "ottla.log.format=json"]
    for name, command in commands.items():
        with subprocess.Popen(
            [*command, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("ready ")
            process.terminate()
            _, errors = process.communicate(timeout=60)
        log = errors if name == "serve" else (tmp_path / "cluster" / "node-1" / "node.log").read_text()
        lines = [json.loads(line) for line in log.splitlines() if not line.startswith("ready ")]
        assert any("serves on" in line["message"] for line in lines)
        assert any("has stopped" in line["message"] for line in lines)
