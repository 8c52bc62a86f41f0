"""The way between the nodes of a simulated quorum: Python objects that take the links of the simulated network.

It stands for connections over TCP. A message waits while its link is cut, and may arrive after its sender has given up.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import NamedTuple

from ottla.broker.quorum.raft_driver import RaftDriver
from ottla.core.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    Request,
    Response,
    VoteRequest,
)
from ottla.sim.network import SimNetwork

REQUEST_TIMEOUT_S = 2.0
_FETCH_BYTES = 10_000
_FETCH_WAIT_MS = 500
_SNAPSHOT_BYTES = 600

# `observe(source, target, request, response)`: None if the request is about to be sent.
Observer = Callable[[int, int, Request, Response | None], None]


class _Server(NamedTuple):
    """`context` is that of its process: it does not run while the process is paused, and ends with it."""

    driver: RaftDriver
    context: Context


class QuorumTransport:
    def __init__(self, network: SimNetwork, observe: Observer) -> None:
        self._network = network
        self._observe = observe
        self._servers: dict[int, _Server] = {}
        self._without_power: set[int] = set()
        self._deliveries: set[asyncio.Task[None]] = set()

    @staticmethod
    def host(node_id: int) -> str:
        return f"node{node_id}"

    def serve(self, node_id: int, driver: RaftDriver, context: Context) -> None:
        self._servers[node_id] = _Server(driver, context)
        self._without_power.discard(node_id)

    def end(self, node_id: int, *, has_power: bool) -> None:
        """The process is dead: its peers get a reset, or nothing after a power loss."""
        self._servers.pop(node_id, None)
        if not has_power:
            self._without_power.add(node_id)

    async def exchange(self, source: int, target: int, request: Request) -> Response:
        """Raises ConnectionError. May wait for ever."""
        self._observe(source, target, request, None)
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        # The message belongs to the network: it is not lost if the process of the sender ends.
        delivery = asyncio.get_running_loop().create_task(
            self._deliver(source, target, request, answer), context=Context()
        )
        self._deliveries.add(delivery)
        delivery.add_done_callback(self._deliveries.discard)
        return await answer

    async def _deliver(
        self, source: int, target: int, request: Request, answer: "asyncio.Future[Response]"
    ) -> None:
        try:
            await self._network.carry(self.host(source), self.host(target))
            response = await self._respond(source, target, request)
            if response is None and target in self._without_power:
                return  # nobody tells the sender
            await self._network.carry(self.host(target), self.host(source))
        except ConnectionResetError as error:
            if not answer.done():
                answer.set_exception(error)
            return
        if answer.done():  # the caller was cancelled
            return
        if response is None:
            answer.set_exception(ConnectionResetError(f"node {target} closed the connection"))
        else:
            answer.set_result(response)

    async def _respond(self, source: int, target: int, request: Request) -> Response | None:
        """None if the process of the target is dead, or ends meanwhile."""
        server = self._servers.get(target)
        if server is None:
            return None
        work = asyncio.get_running_loop().create_task(
            respond(server.driver, request), context=server.context.copy()
        )
        await asyncio.wait([work])
        if work.cancelled() or work.exception() is not None or self._servers.get(target) is not server:
            return None
        response = work.result()
        self._observe(source, target, request, response)
        return response


class SimPeers:
    """The `Peers` of one node."""

    def __init__(self, transport: QuorumTransport, node_id: int) -> None:
        self._transport = transport
        self._node_id = node_id

    async def call(self, node_id: int, request: Request) -> Response:
        async with asyncio.timeout(REQUEST_TIMEOUT_S):
            return await self._transport.exchange(self._node_id, node_id, request)

    async def close(self) -> None:
        """There are no connections to close."""


async def respond(driver: RaftDriver, request: Request) -> Response:
    match request:
        case VoteRequest():
            return await driver.vote(request)
        case BeginQuorumEpochRequest():
            return await driver.begin_quorum_epoch(request)
        case EndQuorumEpochRequest():
            return await driver.end_quorum_epoch(request)
        case FetchRequest():
            return await driver.fetch(request, max_bytes=_FETCH_BYTES, max_wait_ms=_FETCH_WAIT_MS)
        case FetchSnapshotRequest():
            return await driver.fetch_snapshot(request, max_bytes=_SNAPSHOT_BYTES)
