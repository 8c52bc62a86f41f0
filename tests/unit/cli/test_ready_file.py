"""`ottla serve --ready-file`: the file has the address while the broker serves."""

import asyncio
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker import run
from ottla.testing.helpers import wait_until

pytestmark = pytest.mark.slow


def serve(tmp_path: Path, ready_file: Path) -> "subprocess.Popen[str]":
    command = [
        "serve",
        "--data",
        str(tmp_path / "data"),
        "--listen",
        "127.0.0.1:0",
        "--ready-file",
        str(ready_file),
    ]
    return subprocess.Popen(
        [sys.executable, "-m", "ottla.cli.main", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_file_has_the_address_until_the_broker_stops(tmp_path: Path):
    ready_file = tmp_path / "ready"
    with serve(tmp_path, ready_file) as process:
        assert wait_until(lambda: ready_file.exists() or process.poll() is not None, 200)
        address = ready_file.read_text()
        assert process.stdout is not None
        assert process.stdout.readline() == f"ready {address}"
        process.terminate()
        process.communicate(timeout=200)
    assert process.returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]


def test_the_file_of_a_killed_broker_does_not_say_that_this_one_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    ready_file = tmp_path / "ready"
    ready_file.write_text("127.0.0.1:1\n")
    seen = []

    async def start(*arguments: object) -> None:
        seen.append(ready_file.exists())

    monkeypatch.setattr(run, "_start_unless_stopped", start)
    config: Any = SimpleNamespace(node_id=1)
    assert asyncio.run(run._serve(config, ready_file)) == 0
    assert seen == [False]


def test_a_file_that_cannot_be_removed_ends_the_broker(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    config: Any = None
    assert asyncio.run(run._serve(config, tmp_path)) == run.NOT_STARTED
    assert "ottla serve: --ready-file cannot be written: " in capsys.readouterr().err


def test_a_file_that_cannot_be_written_ends_the_broker(tmp_path: Path):
    with serve(tmp_path, tmp_path / "missing" / "ready") as process:
        _, errors = process.communicate(timeout=200)
    assert process.returncode == 2
    assert "ottla serve: --ready-file cannot be written: " in errors
