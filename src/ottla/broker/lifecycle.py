"""The life of a broker in its cluster (KIP-631): it registers, catches up, is unfenced, sends heartbeats, shuts down.

The controller fences a broker whose heartbeats stop, and gives its partitions to others. A fenced broker that can still
send heartbeats is unfenced with the next one.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from ottla.core.controller.commands import BrokerHeartbeat, HeartbeatReply, RegisterBroker
from ottla.model.config import BrokerConfig
from ottla.model.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.broker.active_controller import ActiveController
    from ottla.broker.services import MetadataCache

logger = logging.getLogger("ottla.broker")

_REGISTRATION_RETRY_S = 0.2
# While the broker catches up or waits for the end of its leaderships, it asks more often than the usual heartbeat.
_IMPATIENT_S = 0.05
# After a lost connection. It bounds the heartbeats to a controller that closes every connection.
_RECONNECT_S = 0.1
_SHUTDOWN_S, _SHUTDOWN_REPLY_S = 60.0, 3.0


class BrokerState(Enum):
    STARTING = "starting"
    FENCED = "fenced"
    RUNNING = "running"
    SHUTTING_DOWN = "shutting down"


class LifecycleSettings(NamedTuple):
    heartbeat_interval_s: float
    session_timeout_s: float
    registration_timeout_s: float

    @classmethod
    def from_config(cls, config: BrokerConfig) -> "LifecycleSettings":
        return cls(
            config.get_int("broker.heartbeat.interval.ms") / 1000,
            config.get_int("broker.session.timeout.ms") / 1000,
            config.get_int("initial.broker.registration.timeout.ms") / 1000,
        )


class BrokerLifecycle:
    """`on_failure` is called once if another process has taken this broker's id."""

    def __init__(
        self,
        controller: "ActiveController",
        metadata: "MetadataCache",
        settings: LifecycleSettings,
        on_failure: Callable[[Exception], None],
    ) -> None:
        self.state = BrokerState.STARTING
        self.broker_epoch = -1
        self.offline_directories: tuple[UUID, ...] = ()
        self.cordoned_directories: tuple[UUID, ...] | None = None
        self._controller = controller
        self._metadata = metadata
        self._settings = settings
        self._on_failure = on_failure
        self._wants_fence = True
        self._wants_shut_down = False
        self._wake = asyncio.Event()
        self._replied: list[asyncio.Future[HeartbeatReply]] = []
        self._task: asyncio.Task[None] | None = None
        self._failure: KafkaError | None = None

    async def register(self, registration: RegisterBroker) -> None:
        """Registers the broker's process, and begins with its heartbeats. Raises KafkaError if it is rejected.

        The id may still be taken by the previous process of this broker, until the session of that one has ended.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._settings.registration_timeout_s
        has_waited = False
        while True:
            try:
                self.broker_epoch = await self._controller.submit(
                    registration, max(deadline_s - loop.time(), 1.0)
                )
                break
            except KafkaError as error:
                if error.code is not ErrorCode.duplicate_broker_registration or loop.time() >= deadline_s:
                    raise _registration_error(registration, error) from error
                if not has_waited:
                    has_waited = True
                    logger.warning(
                        "broker %d is registered by another process; waiting until the session of that one has ended",
                        registration.broker_id,
                    )
            await asyncio.sleep(_REGISTRATION_RETRY_S)
        self._broker_id = registration.broker_id
        self.state = BrokerState.FENCED
        self._task = asyncio.create_task(self._run(), name="heartbeats")

    async def catch_up(self) -> None:
        """Returns when this broker has the metadata up to its registration."""
        await self._until(lambda reply: reply.is_caught_up)

    async def unfence(self) -> None:
        """Tells the controller that this broker can serve. Returns when it may."""
        self._wants_fence = False
        await self._until(lambda reply: not reply.is_fenced)

    async def shut_down(self) -> None:
        """A controlled shutdown: other replicas take over the leaderships first, if they can.

        Gives up if the controller does not reply: the majority of the controllers may be down.
        """
        if self._task is None or self._task.done():
            return
        self.state, self._wants_shut_down = BrokerState.SHUTTING_DOWN, True
        try:
            async with asyncio.timeout(_SHUTDOWN_S):
                await self._until(lambda reply: reply.should_shut_down, _SHUTDOWN_REPLY_S)
        except TimeoutError:
            logger.warning(
                "broker %d stops although the controller has not confirmed it; its partitions get other leaders "
                "when its session ends",
                self._broker_id,
            )
        except KafkaError:
            pass  # it is no longer registered: `on_failure` has the reason

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def controller_changed(self) -> None:
        """A new controller does not know which brokers are alive: this one tells it at once."""
        self._wake.set()

    def controller_disconnected(self) -> None:
        """The controller takes this for the death of the broker, unless a heartbeat comes soon."""
        asyncio.get_running_loop().call_later(_RECONNECT_S, self._wake.set)

    def directories_went_offline(self, directories: "tuple[UUID, ...]") -> None:
        """The next heartbeat, which is sent at once, reports them to the controller (KIP-858)."""
        self.offline_directories = directories
        self._wake.set()

    def directories_cordoned(self, directories: "tuple[UUID, ...] | None") -> None:
        """Likewise (KIP-1066). None: the metadata cannot have them."""
        if directories != self.cordoned_directories:
            self.cordoned_directories = directories
            self._wake.set()

    async def _until(
        self, is_met: Callable[[HeartbeatReply], bool], reply_timeout_s: float | None = None
    ) -> None:
        """Sends heartbeats until a reply meets the condition. Raises TimeoutError if a reply takes too long."""
        while True:
            async with asyncio.timeout(reply_timeout_s):
                reply = await self._next_reply()
            if is_met(reply):
                return
            await asyncio.sleep(_IMPATIENT_S)

    async def _next_reply(self) -> HeartbeatReply:
        """The reply to a heartbeat that is sent after this call. Raises KafkaError if no more are sent."""
        if self._failure is not None:
            raise self._failure
        replied: asyncio.Future[HeartbeatReply] = asyncio.get_running_loop().create_future()
        self._replied.append(replied)
        self._wake.set()
        return await replied

    async def _run(self) -> None:
        interval_s, pause_s = self._settings.heartbeat_interval_s, _IMPATIENT_S
        try:
            while True:
                self._wake.clear()
                is_answered = await self._heartbeat()
                wait_s = interval_s if is_answered else pause_s
                pause_s = _IMPATIENT_S if is_answered else min(2 * pause_s, interval_s)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await self._wake.wait()
        except KafkaError as error:
            self._failure = error
            for replied in self._replied:
                if not replied.done():
                    replied.set_exception(error)
            self._on_failure(error)

    async def _heartbeat(self) -> bool:
        """Returns whether there was a reply. Raises KafkaError if this process is no longer the broker of its id."""
        replied, self._replied = self._replied, []
        command = BrokerHeartbeat(
            self._broker_id,
            self.broker_epoch,
            self._metadata.image.offset,
            want_fence=self._wants_fence,
            want_shut_down=self._wants_shut_down,
            offline_log_dirs=self.offline_directories,
            cordoned_log_dirs=self.cordoned_directories,
        )
        try:
            reply = await self._controller.submit(command, self._settings.session_timeout_s / 2)
        except Exception as error:  # a controller in this process hands on those of its decision
            self._replied += [future for future in replied if not future.done()]
            code = error.code if isinstance(error, KafkaError) else None
            if code in (ErrorCode.stale_broker_epoch, ErrorCode.broker_id_not_registered):
                raise KafkaError(
                    code,
                    f"broker {self._broker_id} is no longer registered with epoch {self.broker_epoch}: it was "
                    "unregistered, or another process registered with its node.id. Check that no two nodes have the "
                    "same node.id, and start it again",
                ) from error
            logger.warning(
                "a heartbeat of broker %d failed: %s", self._broker_id, error,
                exc_info=None if isinstance(error, KafkaError) else error,
            )  # fmt: skip
            return False
        self._apply(reply)
        for future in replied:
            if not future.done():
                future.set_result(reply)
        return True

    def _apply(self, reply: HeartbeatReply) -> None:
        if self.state is BrokerState.SHUTTING_DOWN:
            return
        state = BrokerState.FENCED if reply.is_fenced else BrokerState.RUNNING
        if state is not self.state:
            logger.info("broker %d is %s", self._broker_id, "fenced" if reply.is_fenced else "unfenced")
            self.state = state


def _registration_error(registration: RegisterBroker, error: KafkaError) -> KafkaError:
    if error.code is ErrorCode.inconsistent_cluster_id:
        return KafkaError(
            error.code,
            f"broker {registration.broker_id} belongs to another cluster than its controllers ({error.message}). Set "
            "controller.quorum.voters to the controllers of its own cluster; or, if it has no records yet, delete its "
            "log.dirs and format them with the cluster id of those controllers",
        )
    if error.code is ErrorCode.duplicate_broker_registration:
        return KafkaError(
            error.code,
            f"node.id={registration.broker_id} belongs to another broker that is running. Set another node.id, or stop "
            "that broker",
        )
    return KafkaError(
        error.code, f"broker {registration.broker_id} could not register: {error.message or error.code.name}"
    )
