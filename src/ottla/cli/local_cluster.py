"""The processes of a local cluster: start them, wait until they are ready, watch, restart and stop them.

A node is any program that prints `ready HOST:PORT` when it serves, and stops cleanly on SIGTERM. It writes to its log
file directly, so it never waits for this program, and this program reads the file.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from ottla.admin.signal_flag import SignalFlag
from ottla.cli.output import CommandError

_POLL_S = 0.05
_LAST_LINES = 20
_READY = re.compile(r"ready (\S+)")


class NodeSpec(NamedTuple):
    """`has_controller`: it stops after the nodes that have none, which need a controller to stop cleanly.

    The process inherits `descriptors`.
    """

    node_id: int
    command: Sequence[str]
    log_path: Path
    has_controller: bool
    descriptors: Sequence[int] = ()


class NodeFailedError(CommandError):
    """A node ended before it was ready, or was not ready in time."""


class Node:
    """One process, and its log since it was started."""

    def __init__(self, spec: NodeSpec) -> None:
        self.id = spec.node_id
        self.spec = spec
        self.address: str | None = None  # where it serves, once it is ready
        self.last_lines: deque[str] = deque(maxlen=_LAST_LINES)
        with spec.log_path.open("ab") as log:
            self._position = log.tell()
            self.process = subprocess.Popen(
                [sys.executable, "-m", "ottla.cli.die_with_parent", str(os.getpid()), *spec.command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=spec.descriptors,
                # Ctrl-C at the terminal must not reach the nodes: they are stopped in order.
                process_group=0,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative if a signal ended it."""
        return self.process.poll()

    def read_log(self) -> list[str]:
        """The complete lines since the last call; empty if somebody has removed the file."""
        try:
            with self.spec.log_path.open("rb") as log:
                log.seek(self._position)
                complete, newline, _ = log.read().rpartition(b"\n")
        except FileNotFoundError:
            return []
        self._position += len(complete) + len(newline)
        lines = complete.decode(errors="replace").splitlines() if newline else []
        self.last_lines += lines
        for line in lines:
            if self.address is None and (ready := _READY.fullmatch(line)):
                self.address = ready[1]
        return lines

    def __str__(self) -> str:
        return f"node {self.id} (pid {self.pid})"

    def ending(self) -> str:
        """How it ended, as a part of a sentence."""
        code = self.exit_code or 0
        if code >= 0:
            return f"ended with exit code {code}"
        try:
            return f"was killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"was killed by signal {-code}"

    def log_tail(self) -> str:
        if not self.last_lines:
            return f"It wrote nothing to {self.spec.log_path}"
        lines = "\n".join(f"  {line}" for line in self.last_lines)
        return f"The last lines of {self.spec.log_path}:\n{lines}"


class LocalCluster:
    """`report` gets messages for people; `show_line` gets every line of a node's log, with the node's id.

    Every method that waits returns early once `stop_requested` is set.
    """

    def __init__(
        self,
        specs: Sequence[NodeSpec],
        stop_requested: SignalFlag,
        report: Callable[[str], None],
        show_line: Callable[[int, str], None] = lambda node_id, line: None,
    ) -> None:
        self._specs = specs
        self._stop_requested = stop_requested
        self._report = report
        self._show_line = show_line
        self._ended: set[int] = set()  # the ids of nodes that ended by themselves, and were reported
        self._restarting: dict[int, float] = {}  # the ids of nodes that must end, and when they are killed
        self.nodes: list[Node] = []

    def start(self) -> None:
        """All at once: a quorum needs the majority of its voters."""
        for spec in self._specs:
            self.nodes.append(Node(spec))

    def wait_until_ready(self, timeout_s: float) -> None:
        """Raises NodeFailedError if a node ends before all are ready, or if one is not ready in time."""
        deadline = time.monotonic() + timeout_s
        while not self._stop_requested.is_set():
            self.check_alive()
            waiting = [node for node in self.nodes if node.address is None]
            if not waiting:
                return
            if time.monotonic() > deadline:
                raise NodeFailedError(
                    f"{waiting[0]} was not ready within {timeout_s:g} s. {waiting[0].log_tail()}"
                )
            self._stop_requested.wait(_POLL_S)

    def check_alive(self) -> None:
        """Raises NodeFailedError if a node has ended."""
        ended = [node for node in self.nodes if node.exit_code is not None]
        self._read_logs()
        for node in ended:
            raise NodeFailedError(f"{node} {node.ending()} before the cluster was ready. {node.log_tail()}")

    def restart(self, node_id: int, grace_s: float) -> None:
        """Asks the node to stop; `watch` starts it again when its process has ended, or kills it after `grace_s`."""
        node = next(node for node in self.nodes if node.id == node_id)
        self._restarting[node_id] = time.monotonic() + grace_s
        if node.exit_code is None:
            node.process.send_signal(signal.SIGTERM)

    def watch(
        self,
        on_end: Callable[[Node], None],
        on_restart: Callable[[Node], None] = lambda node: None,
        on_turn: Callable[[], None] = lambda: None,
    ) -> None:
        """Returns when it shall stop, or when no node is left. Calls `on_end` for each node that ends by itself, and
        `on_restart` for each that `restart` has started again. `on_turn` is called a few times a second.
        """
        while not self._stop_requested.is_set():
            on_turn()
            ended = [
                node
                for node in self.nodes
                if node.exit_code is not None and node.id not in self._ended | self._restarting.keys()
            ]
            self._read_logs()
            for node in ended:
                self._ended.add(node.id)
                on_end(node)
            for node in [node for node in self.nodes if node.id in self._restarting]:
                if self._has_ended(node):
                    on_restart(self._start_again(node))
            if len(self._ended) == len(self.nodes):
                return
            self._stop_requested.wait(_POLL_S)

    def _has_ended(self, node: Node) -> bool:
        if node.exit_code is None and time.monotonic() > self._restarting[node.id]:
            self._report(f"{node} did not stop in time and is killed (SIGKILL)")
            node.process.kill()
            node.process.wait()
        return node.exit_code is not None

    def _start_again(self, node: Node) -> Node:
        if node.exit_code != 0 and node.id not in self._ended:
            self._report(f"{node} did not stop cleanly: it {node.ending()}. {node.log_tail()}")
        del self._restarting[node.id]
        self._ended.discard(node.id)
        new = Node(node.spec)
        self.nodes[self.nodes.index(node)] = new
        return new

    def stop(self, grace_s: float, kill_requested: SignalFlag) -> bool:
        """Stops the nodes without a controller, then the others. Returns whether all of them stopped cleanly.

        A node that takes longer than `grace_s` is killed, and all are once `kill_requested` is set.
        """
        brokers = [node for node in self.nodes if not node.spec.has_controller]
        others = [node for node in self.nodes if node.spec.has_controller]
        results = [self._stop(group, grace_s, kill_requested) for group in (brokers, others)]
        return all(results)

    def _stop(self, nodes: list[Node], grace_s: float, kill_requested: SignalFlag) -> bool:
        running = [node for node in nodes if node.exit_code is None]
        for node in running:
            node.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + grace_s
        while any(node.exit_code is None for node in running):
            self._read_logs()
            if kill_requested.is_set() or time.monotonic() > deadline:
                break
            kill_requested.wait(_POLL_S)
        for node in running:
            if node.exit_code is None:
                reason = "" if kill_requested.is_set() else f" did not stop within {grace_s:g} s and"
                self._report(f"{node}{reason} is killed (SIGKILL)")
                node.process.kill()
                node.process.wait()
        self._read_logs()
        failed = [node for node in running if node.exit_code != 0]
        for node in failed:
            if node.exit_code != -signal.SIGKILL:
                self._report(f"{node} did not stop cleanly: it {node.ending()}. {node.log_tail()}")
        return not failed

    def _read_logs(self) -> None:
        for node in self.nodes:
            for line in node.read_log():
                self._show_line(node.id, line)
