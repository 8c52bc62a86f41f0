"""The active controller of the cluster: decides commands, and responds when their records are committed.

It exists on the leader of the quorum only, for one epoch, and is discarded when the leadership ends. It decides on
records that may not be committed yet; nothing of that is visible before they are.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from ottla.broker.quorum.loader import MetadataLoader
from ottla.broker.quorum.raft_driver import RaftDriver
from ottla.core.controller.commands import (
    AllocateProducerIds,
    AlterPartition,
    AssignReplicasToDirs,
    BrokerHeartbeat,
    ControllerCommand,
    ControllerDecision,
    CreateTopics,
    DeleteTopics,
    FenceStaleBrokers,
    ResponseT,
    WriteNoOp,
)
from ottla.core.controller.machine import ControllerMachine
from ottla.core.controller.partition_index import PartitionKey
from ottla.core.raft.errors import NotLeader
from ottla.env import Env
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.metadata_records.codec import encode_record
from ottla.protocol.metadata_records.records import MetadataRecord

logger = logging.getLogger("ottla.quorum")

# More are encoded in a thread.
RECORDS_ENCODED_ON_LOOP = 500
_RETRY_MS = 1_000

# Responses to these need not wait until the broker of this process has opened and deleted partitions. While it opens
# thousands of them, the sessions of all brokers would end: a broker sends no heartbeat before the response to the last.
_OF_BROKERS = (BrokerHeartbeat, AlterPartition, AllocateProducerIds, AssignReplicasToDirs)


class _QueuedCommand(NamedTuple):
    command: ControllerCommand[Any]
    response: "asyncio.Future[Any]"


class _Decided(NamedTuple):
    """`offset`: the last record that the response may depend on."""

    offset: int
    response: "asyncio.Future[Any]"
    result: ControllerDecision[Any] | Exception


class ControllerRuntime:
    """`machine` has all records of the log. Commands are decided in the order in which they are submitted.

    A topic may be created only after the broker of this process has deleted the one of the same name before it. So the
    creations of topics after a deletion wait until it is published, and so do later deletions, which otherwise could
    delay them for ever. No other command waits: the broker may have to open thousands of partitions first, and the
    sessions of all brokers would end meanwhile.
    """

    def __init__(
        self, env: Env, driver: RaftDriver, loader: MetadataLoader, machine: ControllerMachine, epoch: int
    ) -> None:
        self.machine = machine
        self.epoch = epoch
        self._env = env
        self._driver = driver
        self._loader = loader
        self._queue: list[_QueuedCommand] = []
        self._decided: deque[_Decided] = deque()
        self._uncommitted: deque[_Decided] = deque()  # of brokers' commands
        self._wake = asyncio.Event()
        self._deletion_offset: int | None = None  # of a deletion of topics that is not published
        self._stopped: KafkaError | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._retry_at_ms = 0
        machine.on_activated(env.clock.monotonic_ms())
        self._watch_sessions()

    async def submit(self, command: ControllerCommand[ResponseT]) -> ResponseT:
        """Raises KafkaError if the whole command is rejected."""
        if self._stopped is not None:
            raise self._stopped
        response: asyncio.Future[ResponseT] = asyncio.get_running_loop().create_future()
        self._queue.append(_QueuedCommand(command, response))
        self._wake.set()
        return await response

    def submit_unasked(self, command: ControllerCommand[Any]) -> None:
        """Submits a command of the controller itself. Nobody waits for its response; an error is logged."""
        response: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        response.add_done_callback(partial(_log_failure, command))
        self._queue.append(_QueuedCommand(command, response))
        self._wake.set()

    async def repeat(self, command: ControllerCommand[None], interval_ms: int) -> None:
        """Submits `command` regularly. Ends with the runtime."""
        while interval_ms > 0 and self._stopped is None:
            await asyncio.sleep(interval_ms / 1000)
            if self._stopped is None:
                self.submit_unasked(command)

    async def write_no_ops(self, interval_ms: int) -> None:
        """A quorum without changes writes a record regularly, so that a node that lags can be seen (KIP-835)."""
        last_offset = -1
        while interval_ms > 0 and self._stopped is None:
            await asyncio.sleep(interval_ms / 1000)
            offset = self.machine.image.offset
            if offset == last_offset and self._stopped is None:
                self.submit_unasked(WriteNoOp())
                offset += 1
            last_offset = offset

    def append(self, records: Sequence[MetadataRecord]) -> None:
        """Appends records that no command asks for."""
        version = self.machine.image.metadata_version
        self._propose(records, [encode_record(record, version) for record in records])
        self._loader.offer(self.machine.image)

    def on_committed(self, high_watermark: int) -> None:
        """More records are committed: the responses to brokers that waited for them are sent."""
        while self._uncommitted and self._uncommitted[0].offset < high_watermark:
            _, response, result = self._uncommitted.popleft()
            _resolve(response, result)

    def on_published(self) -> None:
        """The loader has applied more records: the responses that waited for them are sent."""
        offset = self._loader.published_offset
        while self._decided and self._decided[0].offset <= offset:
            _, response, result = self._decided.popleft()
            _resolve(response, result)
        if self._deletion_offset is not None and self._deletion_offset <= offset:
            self._deletion_offset = None
            self._wake.set()

    def stop(self, reason: KafkaError) -> None:
        """All commands without a response get `reason`. Those that were decided may still be committed."""
        if self._stopped is not None:
            return
        self._stopped = reason
        for _, response, _ in (*self._decided, *self._uncommitted):
            _resolve(response, reason)
        self._uncommitted.clear()
        for _, response in self._queue:
            _resolve(response, reason)
        self._decided.clear()
        self._queue.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._wake.set()

    async def run(self) -> None:
        """Until `stop`. Raises an exception if a record contradicts the image, which is not reliable then."""
        while self._stopped is None:
            await self._wake.wait()
            self._wake.clear()
            while commands := self._take_round():
                await self._decide_round(commands)

    async def _decide_round(self, commands: list[_QueuedCommand]) -> None:
        now_ms = self._env.clock.monotonic_ms()  # for the sessions of brokers
        results = [await self._decide(queued.command, now_ms) for queued in commands]
        if self._stopped is not None:
            for queued in commands:
                _resolve(queued.response, self._stopped)
            return
        for queued, result in zip(commands, results, strict=True):
            if isinstance(queued.command, FenceStaleBrokers) and isinstance(result, Exception):
                # The session is still over: without a pause the next decision would fail at once, without end.
                self._retry_at_ms = now_ms + _RETRY_MS
        self._watch_sessions()
        image = self.machine.image
        if any(isinstance(result, ControllerDecision) and result.records for result in results):
            self._loader.offer(image)
        # Errors wait too: they may be caused by another command of this round.
        for queued, result in zip(commands, results, strict=True):
            waiting = self._uncommitted if isinstance(queued.command, _OF_BROKERS) else self._decided
            waiting.append(_Decided(image.offset, queued.response, result))
        self.on_committed(self._driver.node.high_watermark)
        if self._loader.published_offset >= image.offset:
            self.on_published()
        elif any(isinstance(queued.command, DeleteTopics) for queued in commands):
            self._deletion_offset = image.offset

    def _take_round(self) -> list[_QueuedCommand]:
        """The queued commands, without the creations and deletions of topics that have to wait."""
        taken: list[_QueuedCommand] = []
        waiting: list[_QueuedCommand] = []
        is_deleting = self._deletion_offset is not None
        for queued in self._queue:
            is_deletion = isinstance(queued.command, DeleteTopics)
            is_creation = isinstance(queued.command, CreateTopics)
            if (is_creation and is_deleting) or ((is_creation or is_deletion) and waiting):
                waiting.append(queued)
            else:
                taken.append(queued)
                is_deleting = is_deleting or is_deletion
        self._queue = waiting
        return taken

    async def _decide(
        self, command: ControllerCommand[Any], now_ms: int
    ) -> ControllerDecision[Any] | Exception:
        result = await self._decide_part(command, now_ms, ())
        while isinstance(result, ControllerDecision) and result.rest:
            # No command is decided between two parts, but other tasks have their turn.
            self._loader.offer(self.machine.image)
            await asyncio.sleep(0)
            result = await self._decide_part(command, now_ms, result.rest)
        if isinstance(result, ControllerDecision) and result.follow_up is not None:
            self._loader.offer(self.machine.image)
            await asyncio.sleep(0)
            await self._decide(result.follow_up, now_ms)
        return result

    async def _decide_part(
        self, command: ControllerCommand[Any], now_ms: int, rest: Sequence[PartitionKey]
    ) -> ControllerDecision[Any] | Exception:
        if self._stopped is not None:
            return self._stopped
        try:
            decision = self.machine.decide(command, now_ms, rest)
        except KafkaError as error:
            return error
        except Exception as error:
            logger.exception("the controller could not decide %r", command)
            return error
        records, version = decision.records, self.machine.image.metadata_version
        if not records:
            return decision
        if len(records) > RECORDS_ENCODED_ON_LOOP:
            encoded = await self._env.threads.run(
                lambda: [encode_record(record, version) for record in records]
            )
            if self._stopped is not None:
                return self._stopped
        else:
            encoded = [encode_record(record, version) for record in records]
        try:
            self._propose(records, encoded)
        except NotLeader as error:  # `stop` follows
            return KafkaError(ErrorCode.not_controller, str(error))
        return decision

    def _propose(self, records: Sequence[MetadataRecord], encoded: list[bytes]) -> None:
        """Raises NotLeader. After any other error the machine is ahead of the log, and this runtime must end.

        The records are replayed first, as in Kafka: one that contradicts the image must not reach the log, where all
        nodes would fail on it, also after a restart.
        """
        self._driver.check_leads(self.epoch)
        base_offset = self._driver.node.log.end_offset
        for index, record in enumerate(records):
            self.machine.replay(base_offset + index, record, self.epoch)
        entry = self._driver.propose(encoded, self.epoch)
        assert entry.base_offset == base_offset

    # The sessions of brokers

    def _watch_sessions(self) -> None:
        """Sets a timer for the end of the next session, unless one that fires earlier is set already."""
        deadline_ms = self.machine.next_timeout_ms()
        if deadline_ms is None or self._stopped is not None:
            return
        if self._timer is not None:
            if self._timer_ms <= deadline_ms:
                return
            self._timer.cancel()
        wait_s = max(max(deadline_ms, self._retry_at_ms) - self._env.clock.monotonic_ms(), 0) / 1000
        self._timer_ms = deadline_ms
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._check_sessions)

    def _check_sessions(self) -> None:
        self._timer = None
        deadline_ms = self.machine.next_timeout_ms()
        if deadline_ms is not None and deadline_ms <= self._env.clock.monotonic_ms():
            self.submit_unasked(FenceStaleBrokers())
        else:
            self._watch_sessions()


def _log_failure(command: ControllerCommand[Any], response: "asyncio.Future[Any]") -> None:
    error = response.exception()
    if error is not None and not (isinstance(error, KafkaError) and error.code is ErrorCode.not_controller):
        logger.error("%s of the controller failed: %s", type(command).__name__, error)


def _resolve(response: "asyncio.Future[Any]", result: ControllerDecision[Any] | Exception) -> None:
    if response.done():  # the caller was cancelled
        return
    if isinstance(result, Exception):
        response.set_exception(result)
    else:
        response.set_result(result.response)
