"""The active controller of the cluster: decides commands, and responds when their records are committed.

It exists on the leader of the quorum only, for one epoch, and is discarded when the leadership ends. It decides on
records that may not be committed yet; nothing of that is visible before they are.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from ottla.broker.quorum.loader import MetadataLoader
from ottla.broker.quorum.raft_driver import RaftDriver
from ottla.core.controller.commands import ControllerCommand, ControllerDecision, DeleteTopics, ResponseT
from ottla.core.controller.machine import ControllerMachine
from ottla.core.raft.errors import NotLeader
from ottla.env import Env
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.metadata_records.codec import encode_record
from ottla.protocol.metadata_records.records import MetadataRecord

logger = logging.getLogger("ottla.quorum")

# More are encoded in a thread.
RECORDS_ENCODED_ON_LOOP = 500


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

    A topic may be created only after the brokers of this process have deleted the one of the same name before it, so
    the commands after a deletion of topics wait until it is published.
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
        self._wake = asyncio.Event()
        self._published = asyncio.Event()
        self._stopped: KafkaError | None = None

    async def submit(self, command: ControllerCommand[ResponseT]) -> ResponseT:
        """Raises KafkaError if the whole command is rejected."""
        if self._stopped is not None:
            raise self._stopped
        response: asyncio.Future[ResponseT] = asyncio.get_running_loop().create_future()
        self._queue.append(_QueuedCommand(command, response))
        self._wake.set()
        return await response

    def append(self, records: Sequence[MetadataRecord]) -> None:
        """Appends records that no command asks for."""
        version = self.machine.image.metadata_version
        self._propose(records, [encode_record(record, version) for record in records])
        self._loader.offer(self.machine.image)

    def on_published(self) -> None:
        """The loader has applied more records: the responses that waited for them are sent."""
        offset = self._loader.published_offset
        while self._decided and self._decided[0].offset <= offset:
            _, response, result = self._decided.popleft()
            _resolve(response, result)
        self._published.set()

    def stop(self, reason: KafkaError) -> None:
        """All commands without a response get `reason`. Those that were decided may still be committed."""
        if self._stopped is not None:
            return
        self._stopped = reason
        for _, response, _ in self._decided:
            _resolve(response, reason)
        for _, response in self._queue:
            _resolve(response, reason)
        self._decided.clear()
        self._queue.clear()
        self._wake.set()
        self._published.set()

    async def run(self) -> None:
        """Until `stop`. Raises an exception if a record contradicts the image, which is not reliable then."""
        while self._stopped is None:
            await self._wake.wait()
            self._wake.clear()
            while self._queue:
                await self._decide_round()

    async def _decide_round(self) -> None:
        commands = self._take_round()
        now_ms = self._env.clock.now_ms()
        results = [await self._decide(queued.command, now_ms) for queued in commands]
        if self._stopped is not None:
            for queued in commands:
                _resolve(queued.response, self._stopped)
            return
        image = self.machine.image
        if any(isinstance(result, ControllerDecision) and result.records for result in results):
            self._loader.offer(image)
        # Errors wait too: they may be caused by another command of this round.
        for queued, result in zip(commands, results, strict=True):
            self._decided.append(_Decided(image.offset, queued.response, result))
        if self._loader.published_offset >= image.offset:
            self.on_published()
        elif isinstance(commands[-1].command, DeleteTopics):
            await self._until_published(image.offset)

    def _take_round(self) -> list[_QueuedCommand]:
        """All queued commands up to the first deletions of topics, including these."""
        queue = self._queue
        end = 0
        while end < len(queue):
            end += 1
            is_deletion = isinstance(queue[end - 1].command, DeleteTopics)
            if is_deletion and end < len(queue) and not isinstance(queue[end].command, DeleteTopics):
                break
        self._queue = queue[end:]
        return queue[:end]

    async def _decide(
        self, command: ControllerCommand[Any], now_ms: int
    ) -> ControllerDecision[Any] | Exception:
        if self._stopped is not None:
            return self._stopped
        try:
            decision = self.machine.decide(command, now_ms)
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
        entry = self._driver.propose(encoded)
        for index, record in enumerate(records):
            self.machine.replay(entry.base_offset + index, record, entry.epoch)

    async def _until_published(self, offset: int) -> None:
        while self._stopped is None and self._loader.published_offset < offset:
            self._published.clear()
            await self._published.wait()


def _resolve(response: "asyncio.Future[Any]", result: ControllerDecision[Any] | Exception) -> None:
    if response.done():  # the caller was cancelled
        return
    if isinstance(result, Exception):
        response.set_exception(result)
    else:
        response.set_result(result.response)
