"""The test runner ends and says why, even if a test kills its process or hangs."""

from pathlib import Path

import pytest
from tests.run import BY_FILE, LOWEST_PRIORITY, Step, pytest_step, run, run_and_report

pytestmark = pytest.mark.slow  # each test starts pytest with two workers

DIES = """
import os

def test_before():
    pass

def test_dies():
    os.abort()

def test_after():
    pass
"""
HANGS = """
import time

def test_hangs():
    time.sleep(600)
"""


def write_tests(folder: Path, source: str) -> Path:
    for name in ("test_one.py", "test_two.py"):
        (folder / name).write_text(source)
    (folder / "pytest.ini").write_text("[pytest]\n")
    return folder


def test_a_worker_that_dies_fails_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_tests(tmp_path, DIES)
    step = pytest_step("death of a worker", str(folder), *BY_FILE, "-p", "no:randomly", timeout_s=100)
    result = run(step)
    assert result.exit_code not in (0, 124)
    assert result.failed >= 1
    assert "test_dies" in capsys.readouterr().out  # shown while it ran


def test_a_step_that_takes_too_long_is_killed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = run(pytest_step("too long", str(write_tests(tmp_path, HANGS)), timeout_s=5))
    assert result.exit_code == 124
    assert not result.is_good
    assert "too long: killed after 5 s" in capsys.readouterr().out


def test_a_test_that_takes_too_long_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_tests(tmp_path, HANGS)
    result = run(pytest_step("slow test", str(folder), "--timeout=2", timeout_s=100))
    assert result.failed == 2
    assert "test_hangs" in capsys.readouterr().out


def test_the_time_of_each_test_is_reported(tmp_path: Path) -> None:
    (tmp_path / "test_quick.py").write_text("def test_quick(): pass")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    result = run(pytest_step("quick", str(tmp_path), timeout_s=100))
    assert result.is_good
    assert [name.rpartition("::")[2] for name in result.seconds_of] == ["test_quick"]


def test_a_step_in_the_background_prints_its_output_if_it_fails(capsys: pytest.CaptureFixture[str]) -> None:
    run_and_report(Step("good", ["sh", "-c", "echo all is well"], is_background=True))
    run_and_report(Step("bad", ["sh", "-c", "echo the reason; exit 3"], is_background=True))
    shown = capsys.readouterr().out
    assert "all is well" not in shown
    assert "the reason" in shown
    assert "FAILED" in shown


def test_a_step_has_its_priority() -> None:
    result = run(Step("nice", ["nice"], niceness=LOWEST_PRIORITY))
    assert result.output.strip() == "19"
