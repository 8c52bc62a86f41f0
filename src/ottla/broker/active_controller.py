"""The way to the active controller: a call in this process if this node leads the quorum, else a request to the leader.

There is no other way: a single node submits its commands here too, and always finds the controller in its own process.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ottla.core.controller.commands import ControllerCommand, CreateTopics, ResponseT
from ottla.core.raft.messages import NO_NODE
from ottla.model.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kio.schema.envelope.v0.request import EnvelopeRequest

    from ottla.rpc.node_connections import NodeConnections

T = TypeVar("T")

_RETRY_S_MIN, _RETRY_S_MAX = 0.02, 0.5
_LEADER_CHECK_S = 0.1
# For a topic that Metadata or FindCoordinator creates. The client's next requests wait for that request, also a fetch,
# and must not wait for an election. Kafka does not wait at all; clients repeat such a request.
AUTO_CREATE_TIMEOUT_S = 1.0


class OnlyDecidedLocally(KafkaError):
    """The command has no form as a request, and another node is the active controller. To repeat it has no purpose:
    the client retries NOT_CONTROLLER, and its request is forwarded then.
    """


class LocalController(Protocol):
    """This node's part in the quorum."""

    @property
    def leader_id(self) -> int:
        """The active controller, as far as this node knows; -1 if it does not."""
        ...

    @property
    def is_active(self) -> bool: ...

    async def submit(self, command: ControllerCommand[ResponseT]) -> ResponseT: ...


class ActiveController:
    """`connections` reaches the other voters; None if this node is the only one.

    While no leader is known, `refusal` is asked for the reason why none will be, if there is one.
    """

    def __init__(
        self,
        node_id: int,
        cluster_id: str,
        quorum: LocalController,
        connections: "NodeConnections | None" = None,
        *,
        timeout_s: float = 30.0,
        refusal: Callable[[], KafkaError | None] = lambda: None,
    ) -> None:
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._quorum = quorum
        self._connections = connections
        self._timeout_s = timeout_s
        self._refusal = refusal

    @property
    def is_local(self) -> bool:
        return self._quorum.is_active or self._connections is None

    def on_connection_lost(self, notify: Callable[[], None]) -> None:
        """`notify` is called when a connection to a controller is lost, also between two commands."""
        if self._connections is not None:
            self._connections.on_lost = notify

    async def submit(
        self, command: ControllerCommand[ResponseT], timeout_s: float | None = None
    ) -> ResponseT:
        """The controller's response. If this node is the controller, all subscribers have applied its records.

        Raises KafkaError if the controller rejects the whole command. If it cannot be reached in time, the response of
        a command with many parts has NOT_CONTROLLER for each of them; clients retry that.
        """
        try:
            return await self._submit(command, timeout_s or self._timeout_s)
        except KafkaError as error:
            if error.code is not ErrorCode.not_controller:
                raise
            return command.failed(error)

    async def _submit(self, command: ControllerCommand[ResponseT], timeout_s: float) -> ResponseT:
        if self._connections is None:
            return await self._quorum.submit(command)

        was_decided_here = False

        async def attempt(left_s: float) -> ResponseT:
            nonlocal was_decided_here
            if self._quorum.is_active:
                if was_decided_here and isinstance(command, CreateTopics):
                    # The first decision may be committed, and the topic deleted. Another with the same topic ids would
                    # bring the leader epochs of the deleted topic back.
                    raise OnlyDecidedLocally(
                        ErrorCode.not_controller,
                        f"node {self._node_id} lost its leadership before the commit",
                    )
                was_decided_here = True
                async with asyncio.timeout(left_s):
                    return await self._quorum.submit(command)
            from ottla.broker.controller_requests import call_controller

            assert self._connections is not None
            leader_id = self._leader_id()
            return await self._while_it_leads(
                leader_id,
                call_controller(self._connections, leader_id, command, self._cluster_id, left_s),
            )

        return await self._retry(attempt, timeout_s)

    async def forward(self, envelope: "EnvelopeRequest") -> bytes:
        """The response to a client's request, with its header. Raises KafkaError if there is none in time."""
        from kio.schema.envelope.v0.response import EnvelopeResponse

        async def attempt(left_s: float) -> bytes:
            if self._quorum.is_active or self._connections is None:
                raise KafkaError(ErrorCode.unknown_server_error, "this node is the controller by now")
            leader_id = self._leader_id()
            response = await self._while_it_leads(
                leader_id, self._connections.call(leader_id, envelope, EnvelopeResponse, left_s)
            )
            if response.error_code is not ErrorCode.none or response.response_data is None:
                raise KafkaError(response.error_code, "the controller could not serve the forwarded request")
            return response.response_data

        return await self._retry(attempt, self._timeout_s)

    def _leader_id(self) -> int:
        leader_id = self._quorum.leader_id
        if leader_id == NO_NODE:
            refusal = self._refusal()
            if refusal is not None:
                raise refusal
            raise KafkaError(ErrorCode.not_controller, "the quorum has no leader that this node knows")
        if leader_id == self._node_id:
            raise KafkaError(ErrorCode.not_controller, f"node {leader_id} has not become active yet")
        return leader_id

    async def _while_it_leads(self, leader_id: int, call: Coroutine[Any, Any, T]) -> T:
        """The result of a call to the active controller. Raises NOT_CONTROLLER as soon as this node learns of another:
        the one that was called may be paused, or cut off, and not respond for as long as that lasts.

        As after a lost connection, it is not known whether the command was carried out. One that changes nothing the
        second time is answered as the controller finds it, for example with TOPIC_ALREADY_EXISTS.
        """
        task = asyncio.ensure_future(call)
        try:
            while not (await asyncio.wait([task], timeout=_LEADER_CHECK_S))[0]:
                if self._quorum.leader_id not in (leader_id, NO_NODE):
                    assert self._connections is not None
                    self._connections.drop(leader_id)  # no other request may wait behind this one
                    raise KafkaError(
                        ErrorCode.not_controller, f"node {leader_id} is no longer the active controller"
                    )
            return task.result()
        finally:
            task.cancel()

    async def _retry(self, attempt: Callable[[float], Awaitable[T]], timeout_s: float) -> T:
        """Repeats while the controller is unknown, not reachable, or has lost its leadership.

        An attempt gets the seconds that are left, and ends by itself then. It must not be cancelled: a connection ends
        only with a request that times out, and the next attempt needs another one than that which got no response.
        """
        loop = asyncio.get_running_loop()
        deadline_s, pause_s = loop.time() + timeout_s, _RETRY_S_MIN
        while True:
            try:
                return await attempt(deadline_s - loop.time())
            except OnlyDecidedLocally:
                raise
            except KafkaError as error:
                if error.code is not ErrorCode.not_controller:
                    raise
                reason = str(error)
            except OSError as error:
                reason = str(error) or "it does not respond"  # a timeout has no text
            if loop.time() + pause_s >= deadline_s:
                raise KafkaError(
                    ErrorCode.not_controller,
                    f"the active controller could not be reached within {timeout_s:g} s: {reason}. Check that a "
                    "majority of the controllers runs, and that this node can connect to them",
                )
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _RETRY_S_MAX)
