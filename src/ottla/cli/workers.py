"""`ottla serve --workers N`: runs the workers as processes, restarts those that end, and stops all of them."""

import logging
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from ottla.admin.signal_flag import SignalFlag
from ottla.cli.worker_plan import arguments_of, is_own_quorum, plan_workers
from ottla.model.config import BrokerConfig

if TYPE_CHECKING:
    from types import FrameType

_NOT_STARTED = 2
_FAILED = 1
_POLL_S = 0.05
_READ_BYTES = 64 << 10
# A worker that ended is started again after these pauses, which grow until it has run for `_STABLE_S`.
PAUSE_S_MIN, PAUSE_S_MAX = 1.0, 60.0
_STABLE_S = 60.0
_READY_FILE_PAUSE_S = 5.0


def serve_with_workers(config: BrokerConfig, count: int, ready_file: Path | None) -> int:
    """Returns the exit code, as for one broker. Raises ConfigError."""
    configs = plan_workers(config, count)
    reason = _format(config, configs)
    if reason is not None:
        print(f"ottla serve: the workers cannot start: {reason}", file=sys.stderr)
        return _NOT_STARTED
    workers = [
        Worker(number, [sys.executable, "-m", "ottla.cli.main", "serve", *arguments_of(each)])
        for number, each in enumerate(configs, 1)
    ]
    return Supervisor(workers, ready_file).run()


def _format(config: BrokerConfig, configs: Sequence[BrokerConfig]) -> str | None:
    """Formats the folders of the workers with the cluster id of worker 1. Returns why that is impossible."""
    from ottla.broker.formatter import directories_of, format_directories, new_cluster_id
    from ottla.env.real import real_env
    from ottla.storage.meta_properties import UnusableDirectoryError, read_meta_properties

    env = real_env()
    try:
        found = [read_meta_properties(env.disk, path) for path in directories_of(config)]
        cluster_id = next((meta.cluster_id for meta in found if meta is not None), None)
        if cluster_id is None and not is_own_quorum(config):
            return (
                f"{config.log_dirs[0]} is not formatted. All nodes of a cluster have the same cluster id: run `ottla "
                "format --cluster-id ID` with the config of this node; its workers get the same id"
            )
        cluster_id = cluster_id or new_cluster_id(env)
        for each in configs:
            format_directories(env, each, cluster_id=cluster_id, ignore_formatted=True)
    except (UnusableDirectoryError, OSError) as error:
        return str(error)
    return None


class Worker:
    """One process of `ottla serve`. `address` and `metrics_url` are those of the process that runs now."""

    def __init__(self, number: int, command: Sequence[str]) -> None:
        self.number = number
        self._command = command
        self.process: subprocess.Popen[bytes] | None = None
        self.address: str | None = None
        self.metrics_url: str | None = None
        self.pause_s = PAUSE_S_MIN
        self.start_at_s = 0.0  # when to start it again
        self._ready_at_s: float | None = None
        self._unread = b""

    def start(self) -> None:
        self.address = self.metrics_url = self._ready_at_s = None
        self._unread = b""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ottla.cli.die_with_parent", str(os.getpid()), *self._command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            # Ctrl-C at the terminal must not reach the workers: they are stopped in order.
            process_group=0,
        )
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def read_output(self, now_s: float) -> None:
        """A worker prints where it serves, and nothing else."""
        assert self.process is not None
        assert self.process.stdout is not None
        try:
            self._unread += os.read(self.process.stdout.fileno(), _READ_BYTES)
        except BlockingIOError:
            return
        *lines, self._unread = self._unread.split(b"\n")
        for line in lines:
            kind, _, rest = line.decode(errors="replace").partition(" ")
            if kind == "ready":
                self.address, self._ready_at_s = rest, now_s
            elif kind == "metrics":
                self.metrics_url = rest

    def plan_restart(self, now_s: float) -> float:
        """The process has ended. Returns the pause until it is started again; none after a clean stop."""
        assert self.process is not None
        code = self.process.returncode
        self.close()
        self.process = None
        if self._ready_at_s is not None and now_s - self._ready_at_s >= _STABLE_S:
            self.pause_s = PAUSE_S_MIN
        if code == 0:
            self.start_at_s = now_s
            return 0.0
        return self.postpone(now_s)

    def postpone(self, now_s: float) -> float:
        """Returns the pause until the next start. It grows from start to start."""
        pause_s = self.pause_s
        self.pause_s = min(2 * pause_s, PAUSE_S_MAX)
        self.start_at_s = now_s + pause_s
        return pause_s

    def close(self) -> None:
        if self.process is not None and self.process.stdout is not None:
            self.process.stdout.close()

    def ending(self) -> str:
        """How its process ended, as a part of a sentence."""
        assert self.process is not None
        code = self.process.returncode
        if code >= 0:
            return f"ended with exit code {code}"
        try:
            return f"was killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"was killed by signal {-code}"

    def __str__(self) -> str:
        return f"worker {self.number} (pid {self.process.pid if self.process else '-'})"


def reports_to(stream: TextIO) -> Callable[[str], None]:
    """A function that writes a line and neither raises nor waits: the workers serve on, whoever reads the stream."""
    from ottla.broker.logging_setup import PipeHandler

    handler = PipeHandler(stream)
    handler.setFormatter(logging.Formatter("ottla serve: %(message)s"))
    return lambda text: handler.emit(logging.LogRecord(__name__, logging.WARNING, "", 0, text, None, None))


class Supervisor:
    """Starts all workers at once: brokers wait for the controller, which is worker 1 unless it runs elsewhere.

    From then on it stops them for a signal only: an error of the machine may pass, and they serve without it.
    """

    def __init__(
        self,
        workers: Sequence[Worker],
        ready_file: Path | None,
        *,
        report: Callable[[str], None] | None = None,
    ) -> None:
        self._workers = workers
        self._ready_file = ready_file
        self._report = reports_to(sys.stderr) if report is None else report
        self._written = ""  # the content of the ready file
        self._write_at_s = 0.0  # when to try again to write it
        self.stop, self.kill = SignalFlag(), SignalFlag()

    def run(self) -> int:
        """Until SIGTERM or SIGINT; a second signal kills. Returns the exit code."""
        before = {number: signal.signal(number, self._handle) for number in (signal.SIGTERM, signal.SIGINT)}
        code = 0
        try:
            if self._ready_file is not None:
                self._ready_file.unlink(
                    missing_ok=True
                )  # that of a supervisor that was killed has old addresses
            for worker in self._workers:
                worker.start()
            code = self._wait_until_ready()
            if code == 0 and not self.stop.is_set():
                self._announce()
                self._watch()
        except OSError as error:
            self._report(f"the workers stop: {error}")
            code = _NOT_STARTED
        finally:
            is_clean = self._stop_all()
            for number, handler in before.items():
                signal.signal(number, handler)
        return code or (0 if is_clean else _FAILED)

    def _handle(self, number: int, frame: "FrameType | None") -> None:
        (self.kill if self.stop.is_set() else self.stop).set()

    def _wait_until_ready(self) -> int:
        """Returns the exit code of a worker that ended before all were ready, otherwise 0."""
        while not self.stop.is_set():
            self._read_output()
            for worker in self._workers:
                if not worker.is_running:
                    assert worker.process is not None
                    code = worker.process.returncode
                    self._report(
                        f"{worker} {worker.ending()} before all workers were ready; the others are stopped"
                    )
                    return code if code > 0 else _FAILED
            if all(worker.address is not None for worker in self._workers):
                return 0
        return 0

    def _announce(self) -> None:
        self._write_ready_file()
        for worker in self._workers:
            if worker.metrics_url is not None:
                print(f"metrics {worker.metrics_url}")
        print(f"ready {self._addresses()}", flush=True)

    def _addresses(self) -> str:
        return ",".join(worker.address or "" for worker in self._workers)

    def _write_ready_file(self) -> None:
        """Also when a worker has another address after its restart, which port 0 allows."""
        addresses = self._addresses()
        if (
            self._ready_file is None
            or addresses == self._written
            or not all(w.address for w in self._workers)
        ):
            return
        unfinished = self._ready_file.with_name(f"{self._ready_file.name}.tmp")
        unfinished.write_text(f"{addresses}\n", encoding="utf-8")
        unfinished.replace(self._ready_file)
        self._written = addresses

    def _watch(self) -> None:
        while not self.stop.is_set():
            self._read_output()
            now_s = time.monotonic()
            self._update_ready_file(now_s)
            for worker in self._workers:
                if worker.process is None and now_s >= worker.start_at_s:
                    self._start_again(worker, now_s)
                elif worker.process is not None and not worker.is_running:
                    name, ending = str(worker), worker.ending()
                    pause_s = worker.plan_restart(now_s)
                    self._report(
                        f"{name} {ending}; it is started again" + (f" in {pause_s:g} s" if pause_s else "")
                    )

    def _update_ready_file(self, now_s: float) -> None:
        if now_s < self._write_at_s:
            return
        try:
            self._write_ready_file()
        except OSError as error:
            self._write_at_s = now_s + _READY_FILE_PAUSE_S
            self._report(
                f"the ready file has old addresses ({error}); it is written again in {_READY_FILE_PAUSE_S:g} s"
            )

    def _start_again(self, worker: Worker, now_s: float) -> None:
        try:
            worker.start()
        except OSError as error:  # too many processes, or too little memory
            pause_s = worker.postpone(now_s)
            self._report(
                f"worker {worker.number} cannot be started ({error}); it is started again in {pause_s:g} s"
            )

    def _read_output(self) -> None:
        """Waits a moment for a line of any worker."""
        running = [worker for worker in self._workers if worker.is_running]
        # It needs no file descriptor: there may be none left.
        with selectors.PollSelector() as selector:
            for worker in running:
                assert worker.process is not None
                assert worker.process.stdout is not None
                selector.register(worker.process.stdout, selectors.EVENT_READ, worker)
            ready = selector.select(_POLL_S) if running else []
        if not running:
            self.stop.wait(_POLL_S)
        for key, _ in ready:
            key.data.read_output(time.monotonic())

    def _stop_all(self) -> bool:
        """Worker 1 last: the others need the controller for a clean stop. Returns whether all stopped cleanly."""
        self.stop.set()  # from now on a signal asks to kill
        first, *others = self._workers
        results = [self._stop(group) for group in (others, [first])]
        for worker in self._workers:
            worker.close()
        if self._ready_file is not None:
            try:
                self._ready_file.unlink(missing_ok=True)
            except OSError as error:
                self._report(f"the ready file is still there: {error}")
        return all(results)

    def _stop(self, workers: Sequence[Worker]) -> bool:
        running = [worker for worker in workers if worker.is_running]
        for worker in running:
            assert worker.process is not None
            worker.process.send_signal(signal.SIGTERM)
        while any(worker.is_running for worker in running) and not self.kill.is_set():
            self.kill.wait(_POLL_S)
        for worker in running:
            assert worker.process is not None
            if worker.is_running:
                self._report(f"{worker} is killed (SIGKILL)")
                worker.process.kill()
            worker.process.wait()
            if worker.process.returncode not in (0, -signal.SIGKILL):
                self._report(f"{worker} did not stop cleanly: it {worker.ending()}")
        return all(worker.process is not None and worker.process.returncode == 0 for worker in running)
