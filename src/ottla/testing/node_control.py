"""The test's side of a node of a `KafkaCluster`: what the node shall do, and the faults that only it has."""

import concurrent.futures
import itertools
import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

from ottla.testing.controlled_network import Cut
from ottla.testing.error_response import error_response
from ottla.testing.errors import BrokerStoppedError
from ottla.testing.fault_control import FaultControl
from ottla.testing.faults import ControlledRequest, Fault
from ottla.testing.names import find_error
from ottla.testing.node_messages import Answer, Call, FaultSpec, Met, NodeState, Question, Reply

_CALL_TIMEOUT_S = 60.0
_FUNCTION_THREADS = 4
_JOIN_TIMEOUT_S = 10.0


class ClusterNode(FaultControl):
    """One node of a cluster, `kafka.node(2)`: it has the methods of `Kafka` for faults and for the disk.

    `id` is its id. Each node counts the requests that its own faults meet.
    """

    def __init__(self, node_id: int, is_serving: Callable[[], bool]) -> None:
        super().__init__()
        self.id = node_id
        self._is_serving = is_serving
        self._state = NodeState()
        self._link: NodeLink | None = None
        self._fault_ids: dict[Fault, int] = {}
        self._next_fault_id = itertools.count()

    def fill_disk(self) -> None:
        """From now on the node can write nothing to its disk. It stops, as Kafka, when it has no other directory."""
        self._set_state(replace(self._state, is_disk_full=True), "fill_disk", True)

    def free_disk(self) -> None:
        """The disk has room again. A node that has stopped because of it serves again after `restart`."""
        self._set_state(replace(self._state, is_disk_full=False), "fill_disk", False)

    @property
    def cut(self) -> Cut:
        return self._state.cut

    def set_cut(self, cut: Cut) -> None:
        self._set_state(replace(self._state, cut=cut), "cut", cut)

    def start_advance(self, milliseconds: int) -> "Future[None]":
        """A node that does not run has advanced when it starts."""
        self._state = replace(self._state, advanced_ms=self._state.advanced_ms + milliseconds)
        return self.start_call("advance", milliseconds)

    def _set_state(self, state: NodeState, name: str, argument: object) -> None:
        """A node that does not run has it from its next start on."""
        self._state = state
        with suppress(BrokerStoppedError):
            self._call(name, argument)

    def start_call(self, name: str, *arguments: object) -> "Future[None]":
        """A paused node runs it when it is resumed. Raises BrokerStoppedError if the node does not run."""
        self._check_running()
        assert self._link is not None
        return self._link.call(name, *arguments)

    def _call(self, name: str, *arguments: object) -> None:
        future = self.start_call(name, *arguments)
        if self._is_serving():
            future.result(_CALL_TIMEOUT_S)

    # The process of the node

    def open_link(self) -> int:
        """Makes the pair of sockets for a process that will be started. Returns the descriptor of its end."""
        self.close_link()
        state = replace(self._state, faults=self._specs(self._faults))
        self._link = NodeLink(state, self._met, self._respond)
        return self._link.descriptor

    def link_opened(self) -> None:
        """The process has its end of the sockets."""
        assert self._link is not None
        self._link.close_other_end()

    def close_link(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    # Faults

    def _check_running(self) -> None:
        if self._link is None or self._link.is_closed:
            raise BrokerStoppedError(f"node {self.id} does not run. Start it with restart({self.id})")

    def _add(self, fault: Fault) -> Fault:
        fault.synchronize = self._synchronize
        return super()._add(fault)

    def _synchronize(self) -> None:
        """The node has told of all requests that it has met when it replies."""
        with suppress(BrokerStoppedError):
            self._call("ping")

    def _apply_faults(self, faults: Sequence[Fault]) -> None:
        self._call("set_faults", self._specs(faults))

    def _specs(self, faults: Sequence[Fault]) -> tuple[FaultSpec, ...]:
        self._fault_ids = {
            fault: self._fault_ids[fault] if fault in self._fault_ids else next(self._next_fault_id)
            for fault in faults
        }
        return tuple(
            FaultSpec(
                number,
                fault.action,
                fault.api,
                fault.times_left,
                fault.topic,
                fault.partition,
                fault.error,
                fault.delay_s,
                fault.version,
            )
            for fault, number in self._fault_ids.items()
            if not fault.is_used_up
        )

    def _fault(self, number: int) -> Fault | None:
        return next((fault for fault, known in self._fault_ids.items() if known == number), None)

    def _met(self, fault_id: int) -> None:
        if (fault := self._fault(fault_id)) is not None:
            fault.take()

    def _respond(self, question: Question) -> Any:
        """The response of the function of a fault; None if the node shall serve the request."""
        fault = self._fault(question.fault_id)
        if fault is None or fault.function is None:
            return None
        api, version, message = question.api, question.version, question.message
        return fault.function(
            ControlledRequest(
                api,
                version,
                question.client_id,
                message,
                lambda error: error_response(api, version, message, find_error(error)),
            )
        )


class NodeLink:
    """The sockets to one process. A thread reads what it says; functions of `control` run in threads of their own."""

    def __init__(
        self, state: NodeState, on_met: Callable[[int], None], respond: Callable[[Question], Any]
    ) -> None:
        mine, self._other = socket.socketpair()
        self._connection = Connection(mine.detach())
        self._on_met = on_met
        self._respond = respond
        self._has_ended = False
        self._calls: dict[int, Future[None]] = {}
        self._call_ids = itertools.count()
        self._lock = threading.Lock()
        self._functions = ThreadPoolExecutor(_FUNCTION_THREADS, thread_name_prefix="ottla-control")
        self._connection.send(state)
        self._thread = threading.Thread(target=self._receive, name="ottla-node-link", daemon=True)

    @property
    def is_closed(self) -> bool:
        return self._has_ended

    @property
    def descriptor(self) -> int:
        return self._other.fileno()

    def close_other_end(self) -> None:
        """From now on the end of the process ends the connection."""
        self._other.close()
        self._thread.start()

    def call(self, name: str, *arguments: object) -> "Future[None]":
        future: Future[None] = Future()
        with self._lock:
            number = next(self._call_ids)
            self._calls[number] = future
        self._send(Call(number, name, arguments))
        return future

    def close(self) -> None:
        """The process has ended, or will be ended."""
        self._other.close()
        if self._thread.is_alive():
            self._thread.join(_JOIN_TIMEOUT_S)  # it sees the end of the connection
        self._connection.close()
        self._functions.shutdown(cancel_futures=True)

    def _send(self, message: Any) -> None:
        try:
            with self._lock:
                self._connection.send(message)
        except OSError as error:
            raise BrokerStoppedError(f"the node has ended: {error}") from None

    def _receive(self) -> None:
        try:
            while True:
                self._handle(self._connection.recv())
        except (EOFError, OSError):
            pass
        with self._lock:
            self._has_ended = True
            calls = list(self._calls.values())
        for future in calls:
            if not future.done():
                future.set_exception(BrokerStoppedError("the node has ended"))

    def _handle(self, message: Any) -> None:
        if isinstance(message, Reply):
            future = self._calls.pop(message.id)
            if message.error is None:
                future.set_result(None)
            else:
                future.set_exception(message.error)
        elif isinstance(message, Met):
            self._on_met(message.fault_id)
        else:
            self._functions.submit(self._answer, message)

    def _answer(self, question: Question) -> None:
        response, error = None, None
        try:
            response = self._respond(question)
        except Exception as raised:
            error = RuntimeError(f"the function of a fault raised {raised!r}")
        try:
            self._send(Answer(question.id, response, error))
        except BrokerStoppedError:
            pass  # nobody waits for the answer


def wait_for_calls(calls: Sequence["Future[None]"]) -> None:
    for call in concurrent.futures.as_completed(calls, _CALL_TIMEOUT_S):
        call.result()
