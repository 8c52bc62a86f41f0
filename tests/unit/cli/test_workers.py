"""The supervisor of `ottla serve --workers`, with fake brokers as workers."""

import errno
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.cli import workers
from ottla.cli.workers import PAUSE_S_MAX, PAUSE_S_MIN, Supervisor, Worker, reports_to

pytestmark = pytest.mark.slow

FAKE = Path(__file__).with_name("fake_broker.py")
TIMEOUT_S = 30.0


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Run:
    """A supervisor with these workers. `act` runs in a thread, and then the supervisor gets SIGTERM."""

    def __init__(self, folder: Path, *manners: str) -> None:
        self.ready_file = folder / "ready"
        self.reports: list[str] = []
        self.workers = [
            Worker(number, [sys.executable, str(FAKE), manner]) for number, manner in enumerate(manners, 1)
        ]
        self.supervisor = Supervisor(self.workers, self.ready_file, report=self.reports.append)

    def __call__(self, act: Callable[[], None] = lambda: None) -> int:
        problems: list[BaseException] = []

        def run() -> None:
            try:
                act()
            except BaseException as problem:
                problems.append(problem)
            finally:
                os.kill(os.getpid(), signal.SIGTERM)

        thread = threading.Thread(target=run)
        thread.start()
        code = self.supervisor.run()
        thread.join()
        assert not problems, problems
        return code

    def pid(self, number: int) -> int:
        process = self.workers[number - 1].process
        return -1 if process is None else process.pid


def test_all_workers_are_announced_at_once_and_stop_cleanly(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = Run(tmp_path, "", "")
    content: list[str] = []

    def act() -> None:
        wait_until(run.ready_file.exists)
        content.append(run.ready_file.read_text())

    assert run(act) == 0
    assert content == ["127.0.0.1:9092,127.0.0.1:9092\n"]
    assert capfd.readouterr().out == "ready 127.0.0.1:9092,127.0.0.1:9092\n"
    assert not run.ready_file.exists()
    assert run.reports == []


def test_a_worker_that_dies_is_started_again_and_the_others_go_on(tmp_path: Path) -> None:
    run = Run(tmp_path, "", "")

    def act() -> None:
        wait_until(run.ready_file.exists)
        first, before = run.pid(1), run.pid(2)
        os.kill(before, signal.SIGKILL)
        wait_until(lambda: run.pid(2) not in (-1, before) and run.workers[1].address is not None)
        assert run.pid(1) == first

    assert run(act) == 0
    (report,) = run.reports
    assert "was killed by SIGKILL; it is started again in 1 s" in report


def test_a_worker_that_stops_cleanly_is_started_again_at_once(tmp_path: Path) -> None:
    """So a worker can be restarted on its own: `kill PID`."""
    run = Run(tmp_path, "")

    def act() -> None:
        wait_until(run.ready_file.exists)
        before = run.pid(1)
        os.kill(before, signal.SIGTERM)
        wait_until(lambda: run.pid(1) not in (-1, before) and run.workers[0].address is not None)

    assert run(act) == 0
    assert [report.rpartition(") ")[2] for report in run.reports] == [
        "ended with exit code 0; it is started again"
    ]


def test_a_worker_that_fails_before_all_are_ready_ends_the_command(tmp_path: Path) -> None:
    run = Run(tmp_path, "", "fail")
    assert run.supervisor.run() == 3
    assert "ended with exit code 3 before all workers were ready" in run.reports[0]
    assert not run.ready_file.exists()
    assert not run.workers[0].is_running


def test_a_second_signal_kills(tmp_path: Path) -> None:
    run = Run(tmp_path, "", "stubborn")

    def act() -> None:
        wait_until(run.ready_file.exists)
        os.kill(os.getpid(), signal.SIGTERM)
        wait_until(run.supervisor.stop.is_set)

    assert run(act) == 1
    assert any("is killed (SIGKILL)" in report for report in run.reports)


def test_a_signal_before_all_are_ready_stops(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = Run(tmp_path, "", "silent")
    said: list[str] = []

    def handle_signals() -> bool:
        said.append(capfd.readouterr().err)
        return "".join(said).count("starting\n") == 2

    def act() -> None:
        wait_until(handle_signals)
        wait_until(lambda: run.workers[0].address is not None)

    assert run(act) == 0
    assert not any(worker.is_running for worker in run.workers)


def test_the_pauses_grow_to_a_limit_and_shrink_after_a_stable_time() -> None:
    worker = Worker(1, [sys.executable, "-c", "print('ready h:1'); raise SystemExit(1)"])
    pauses, now_s = [], 0.0
    for _ in range(8):
        worker.start()
        assert worker.process is not None
        worker.process.wait()
        worker.read_output(now_s)
        pauses.append(worker.plan_restart(now_s))
        assert worker.process is None
    assert pauses == [1, 2, 4, 8, 16, 32, PAUSE_S_MAX, PAUSE_S_MAX]
    worker.start()
    assert worker.process is not None
    worker.process.wait()
    worker.read_output(now_s)
    assert worker.plan_restart(now_s + 100) == PAUSE_S_MIN


def test_a_worker_that_cannot_be_started_again_is_tried_until_it_can(tmp_path: Path) -> None:
    """The machine had no process to spare: the other workers serve on."""
    run = Run(tmp_path, "", "")
    start, refusals = run.workers[1].start, [errno.EAGAIN, errno.ENOMEM]

    def start_if_there_is_room() -> None:
        if refusals:
            code = refusals.pop(0)
            raise OSError(code, os.strerror(code))
        start()

    def act() -> None:
        wait_until(run.ready_file.exists)
        first, before = run.pid(1), run.pid(2)
        run.workers[1].start = start_if_there_is_room  # type: ignore[method-assign]
        os.kill(before, signal.SIGTERM)  # a clean stop: without the failures, there is no pause
        wait_until(lambda: run.pid(2) not in (-1, before) and run.workers[1].address is not None)
        assert run.pid(1) == first

    assert run(act) == 0
    assert [report.partition(" cannot be started ")[2] for report in run.reports[1:]] == [
        "([Errno 11] Resource temporarily unavailable); it is started again in 1 s",
        "([Errno 12] Cannot allocate memory); it is started again in 2 s",
    ]


def test_a_ready_file_that_cannot_be_written_again_stops_no_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "_READY_FILE_PAUSE_S", 0.1)
    folder, moved = tmp_path / "run", tmp_path / "moved"
    folder.mkdir()
    run = Run(folder, "", "moving")

    def act() -> None:
        wait_until(run.ready_file.exists)
        first, before = run.pid(1), run.pid(2)
        folder.rename(moved)
        os.kill(before, signal.SIGTERM)
        wait_until(lambda: any("the ready file has old addresses" in report for report in run.reports))
        moved.rename(folder)
        expected = f"127.0.0.1:9092,127.0.0.1:{run.pid(2)}\n"
        wait_until(lambda: run.ready_file.exists() and run.ready_file.read_text() == expected)
        assert run.pid(1) == first

    assert run(act) == 0


def test_a_report_waits_for_no_reader(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    try:
        while True:
            os.write(writing, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(writing, True)
    with open(writing, "w", encoding="utf-8") as stderr:
        report = reports_to(stderr)
        threads = [threading.Thread(target=report, args=("worker 1 ended",), daemon=True) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(TIMEOUT_S)
            assert not thread.is_alive()
        received = b""
        while received.count(b"ottla serve: worker 1 ended\n") < 3:
            received += os.read(reading, 1 << 16)
        os.close(reading)
        report("worker 1 ended")  # nobody will ever read it


def test_a_ready_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    run = Run(tmp_path, "")
    run.supervisor._ready_file = tmp_path / "no" / "folder"
    assert run.supervisor.run() == 2
    assert "No such file or directory" in run.reports[0]
