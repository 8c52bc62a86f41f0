"""A node of a `KafkaCluster`: the broker of `ottla serve`, with a clock, a disk and a network that the test controls.

    python -m ottla.testing.cluster_node DESCRIPTOR FILE

DESCRIPTOR is the node's end of a pair of sockets (see ottla.testing.node_messages), FILE its server.properties.
"""

import asyncio
import contextlib
import itertools
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ottla.broker.node import Broker
from ottla.broker.promise import Promise
from ottla.broker.quorum_node import ControllerNode
from ottla.broker.run import Setting, run_broker
from ottla.model.config import BrokerConfig
from ottla.testing.controlled_disk import Volume
from ottla.testing.controlled_env import controlled_env
from ottla.testing.controlled_network import ControlledNetwork, Cut
from ottla.testing.fault_control import install_faults
from ottla.testing.faults import Action, ControlledRequest, Fault
from ottla.testing.node_messages import Answer, Call, FaultSpec, Met, NodeState, Question, Reply
from ottla.testing.time import AdvancedTime, AdvancingLoop, advance, apply_retention, compact


class _NodeFault(Fault):
    """A fault whose count the test's process knows too."""

    def __init__(self, spec: FaultSpec, on_met: Callable[[], None], **options: Any) -> None:
        super().__init__(
            spec.action,
            spec.api,
            times=spec.times,
            topic=spec.topic,
            partition=spec.partition,
            error=spec.error,
            delay_s=spec.delay_s,
            version=spec.version,
            **options,
        )
        self._on_met = on_met

    def take(self) -> bool:
        is_taken = super().take()
        if is_taken:
            self._on_met()
        return is_taken


class _ControlledNode:
    def __init__(self, connection: Connection) -> None:
        state: NodeState = connection.recv()
        self.time = AdvancedTime()
        self.time.advanced_ms = state.advanced_ms
        self.volume = Volume()
        self.volume.is_full = state.is_disk_full
        self.network = ControlledNetwork(state.cut)
        self._connection = connection
        self._sends = threading.Lock()
        self._fault_specs = state.faults
        self._faults: dict[int, _NodeFault] = {}
        self._questions: dict[int, Promise[Any]] = {}
        self._question_ids = itertools.count()
        self._commands: dict[str, Callable[..., Awaitable[None]]] = {
            "ping": self._ping,
            "set_faults": self._set_faults,
            "advance": self._advance,
            "cut": self._set_cut,
            "fill_disk": self._fill_disk,
            "apply_retention": self._apply_retention,
            "compact": self._compact,
        }

    def started(self, broker: "Broker | ControllerNode") -> None:
        assert isinstance(broker, Broker), "all nodes are brokers"
        self._broker = broker
        self._install(self._fault_specs)
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._receive, args=(loop,), name="ottla-control", daemon=True).start()

    def _receive(self, loop: asyncio.AbstractEventLoop) -> None:
        # It ends when the test's process closes its end, or the event loop is closed: the broker stops.
        with contextlib.suppress(EOFError, OSError, RuntimeError):
            while True:
                message = self._connection.recv()
                if isinstance(message, Call):
                    asyncio.run_coroutine_threadsafe(self._run(message), loop)
                else:
                    loop.call_soon_threadsafe(self._answered, message)

    def _send(self, message: Any) -> None:
        # A small message to a process that reads all the time: this does not block for long.
        with self._sends, contextlib.suppress(OSError):
            self._connection.send(message)

    async def _run(self, call: Call) -> None:
        error: Exception | None = None
        try:
            await self._commands[call.name](*call.arguments)
        except Exception as raised:
            error = raised
        self._send(Reply(call.id, error))

    async def _ping(self) -> None:
        """The reply follows all that was sent before."""

    async def _set_faults(self, specs: Sequence[FaultSpec]) -> None:
        self._install(specs)

    def _install(self, specs: Sequence[FaultSpec]) -> None:
        """Faults that are there already keep their counts."""
        self._faults = {spec.id: self._faults.get(spec.id) or self._new_fault(spec) for spec in specs}
        install_faults(self._broker, list(self._faults.values()))

    def _new_fault(self, spec: FaultSpec) -> _NodeFault:
        is_control = spec.action is Action.CONTROL
        return _NodeFault(
            spec,
            lambda: self._send(Met(spec.id)),
            function=(lambda request: self._ask(spec.id, request)) if is_control else None,
        )

    def _ask(self, fault_id: int, request: ControlledRequest) -> Promise[Any]:
        promise: Promise[Any] = Promise()
        number = next(self._question_ids)
        self._questions[number] = promise
        self._send(
            Question(number, fault_id, request.api, request.version, request.client_id, request.message)
        )
        return promise

    def _answered(self, answer: Answer) -> None:
        promise = self._questions.pop(answer.id)
        if answer.error is None:
            promise.complete(answer.response)
        else:
            promise.fail(answer.error)

    async def _advance(self, milliseconds: int) -> None:
        await advance(self._broker, self.time, milliseconds)

    async def _set_cut(self, cut: Cut) -> None:
        self.network.cut = cut

    async def _fill_disk(self, is_full: bool) -> None:
        self.volume.is_full = is_full

    async def _apply_retention(self, topic: str) -> None:
        await apply_retention(self._broker, topic)

    async def _compact(self, topic: str) -> None:
        await compact(self._broker, topic)


def main() -> int:
    descriptor = int(sys.argv[1])
    os.set_inheritable(descriptor, False)  # the node's own children must not keep the connection open
    node = _ControlledNode(Connection(descriptor))
    config = BrokerConfig.load(Path(sys.argv[2]).read_text(encoding="utf-8"), {})
    env = controlled_env(node.time, node.volume, node.network)
    try:
        return run_broker(config, None, Setting(lambda: AdvancingLoop(node.time), env, node.started))
    finally:
        env.threads.close()


if __name__ == "__main__":
    sys.exit(main())
