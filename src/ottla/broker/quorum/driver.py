"""The quorum as the broker uses it: takes commands, and responds when their records are committed.

One task takes all queued commands, decides them one after the other, appends the records of each as a batch, and
flushes once for all of them. Commands that are submitted meanwhile form the next round. So do the commands after a
deletion of topics: a topic of the same name may be created only after the broker has deleted the old one.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from ottla.broker.quorum.bootstrap import bootstrap_records
from ottla.broker.quorum.metadata_log import METADATA_PARTITION, MetadataLog
from ottla.broker.quorum.quorum_state import read_quorum_state, write_quorum_state
from ottla.broker.quorum.settings import QuorumSettings
from ottla.broker.quorum.snapshots import SnapshotId, decode_snapshot, encode_snapshot
from ottla.core.controller.commands import ControllerCommand, ControllerDecision, DeleteTopics, ResponseT
from ottla.core.controller.image import MetadataImage
from ottla.core.controller.machine import ControllerMachine
from ottla.core.controller.settings import ControllerSettings
from ottla.core.controller.snapshot import image_records
from ottla.core.raft.log_state import OffsetAndEpoch
from ottla.core.raft.node import RaftNode
from ottla.core.raft.ready import Entry, Ready
from ottla.core.raft.settings import RaftSettings
from ottla.env import Env
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NO_TIMESTAMP, TopicPartition
from ottla.protocol.metadata_records.codec import decode_record, encode_record
from ottla.protocol.metadata_records.records import AbortTransactionRecord, MetadataRecord
from ottla.storage.disk_errors import RETRY_S, is_disk_failure, out_of_resources_message

logger = logging.getLogger("ottla.quorum")

# If a start had to replay more records after the last snapshot, it writes a new one at once.
REPLAYED_RECORDS_MAX = 5_000
# More are encoded in a thread.
RECORDS_ENCODED_ON_LOOP = 500

# The result, if there is one, is awaited before the responses to the commands that changed the image.
Subscriber = Callable[[MetadataImage, MetadataImage], Awaitable[None] | None]


class _QueuedCommand(NamedTuple):
    command: ControllerCommand[Any]
    response: "asyncio.Future[Any]"


class QuorumDescription(NamedTuple):
    """The content of DescribeQuorum (KIP-836). There is one voter, so the leader's log is the only one."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    log_end_offset: int
    voters: tuple[int, ...]


class Quorum:
    """This node's part in the metadata quorum. So far the node is the only voter.

    `log_dir` is metadata.log.dir. A new log is created there only if this node has no `partitions` yet. `on_failure` is
    called once, if the metadata log cannot be written: no command can be decided then, and the node must stop.
    """

    def __init__(
        self,
        env: Env,
        log_dir: str,
        *,
        node_id: int,
        controller: ControllerSettings,
        settings: QuorumSettings,
        on_failure: Callable[[Exception], None],
        partitions: Sequence[TopicPartition] = (),
    ) -> None:
        self.image = MetadataImage()
        self._env = env
        self._log_dir = log_dir
        self._node_id = node_id
        self._controller_settings = controller
        self._settings = settings
        self._on_failure = on_failure
        self._partitions = partitions
        self._subscribers: list[Subscriber] = []
        self._queue: list[_QueuedCommand] = []
        self._wake = asyncio.Event()
        self._stopped: KafkaError | None = None
        self._has_failed = False
        self._task: asyncio.Task[None] | None = None
        self._snapshot_task: asyncio.Task[None] | None = None
        self._bytes_since_snapshot = 0
        self._records_replayed = 0
        self._snapshot_ms = 0
        self._last_append_ms = NO_TIMESTAMP

    # Starting and stopping

    async def start(self) -> None:
        """Replays the log, becomes leader, and appends the first records to an empty log.

        Raises OSError, and KafkaError if the log or its snapshot is damaged or missing.
        """
        now_ms = self._env.clock.now_ms()
        directory = f"{self._log_dir}/{METADATA_PARTITION}"
        if self._partitions and not MetadataLog.has_records(self._env.disk, directory):
            raise KafkaError(
                ErrorCode.kafka_storage_error,
                f"the metadata log {directory} is missing or empty, but there are {len(self._partitions)} partitions, "
                f"such as {self._partitions[0]}, whose metadata would be lost. Restore that directory from a backup or "
                "set metadata.log.dir to its location; for a new cluster, choose an empty data directory",
            )
        self._log = MetadataLog.open(self._env.disk, directory, self._settings, now_ms)
        self._machine = ControllerMachine(self._controller_settings, self._load_snapshot(now_ms))
        self._replay_log()
        self._raft = RaftNode(
            self._node_id,
            (self._node_id,),
            hard_state=read_quorum_state(self._env.disk, directory),
            log=self._log.log_state(),
            settings=RaftSettings(),  # the timeouts of elections, which one voter does not wait for
            random_below=self._env.random.randrange,
            now_ms=now_ms,
        )
        is_empty = self._log.log_end_offset == 0
        self._raft.tick(now_ms)
        self._machine.skip_to(self._raft.epoch_start_offset, self._raft.epoch)
        if self._machine.in_transaction:
            self._propose([AbortTransactionRecord(reason="Controller failover")])
        if is_empty:
            self._propose(bootstrap_records(self._env.disk, self._log_dir, now_ms))
        await self._persist()
        await self._publish()
        self._maybe_snapshot()
        self._task = asyncio.create_task(self._run(), name="quorum")

    async def close(self) -> None:
        """Ends after the current round. Commands that are still queued get an error."""
        self._stop(KafkaError(ErrorCode.not_controller, f"node {self._node_id} is shutting down"))
        if self._task is not None:
            await self._task
            if self._snapshot_task is not None:
                await self._snapshot_task
            try:
                self._log.close(clean=not self._has_failed)
            except OSError as error:
                # Committed records are on disk; the others were never acknowledged.
                logger.error("the metadata log in %s is not closed cleanly: %s", self._log_dir, error)

    # Use

    async def submit(self, command: ControllerCommand[ResponseT]) -> ResponseT:
        """The response to a command, after its records are committed and all subscribers have applied them.

        Raises KafkaError if the whole command is rejected.
        """
        if self._stopped is not None:
            raise self._stopped
        response: asyncio.Future[ResponseT] = asyncio.get_running_loop().create_future()
        self._queue.append(_QueuedCommand(command, response))
        self._wake.set()
        return await response

    def subscribe(self, callback: Subscriber) -> None:
        """`callback(old, new)` is called for every new image, in order, before the responses to its commands.

        If it is subscribed before the start, the first call has an empty old image.
        """
        self._subscribers.append(callback)

    def describe_quorum(self) -> QuorumDescription:
        return QuorumDescription(
            self._raft.leader_id,
            self._raft.epoch,
            self._raft.high_watermark,
            self._raft.log.end_offset,
            self._raft.voters,
        )

    # Loading

    def _load_snapshot(self, now_ms: int) -> MetadataImage:
        self._snapshot_ms = now_ms
        if not self._log.snapshots:
            return MetadataImage()
        snapshot = self._log.snapshots[-1]
        path = self._log.snapshot_path(snapshot)
        machine = ControllerMachine(self._controller_settings, MetadataImage())
        for record in decode_snapshot(self._env.disk.read_bytes(path), path):
            machine.replay(snapshot.end_offset - 1, record, snapshot.epoch)
        self._snapshot_ms = self._env.disk.modified_ms(path)
        return machine.image

    def _replay_log(self) -> None:
        start = self._machine.image.offset + 1
        for batch in self._log.batches_from(start):
            header = batch.header
            self._bytes_since_snapshot += header.size
            self._last_append_ms = header.max_timestamp
            if not header.is_control:
                for record in batch.records:
                    if record.offset >= start:
                        decoded = decode_record(record.value or b"")
                        self._machine.replay(record.offset, decoded, header.partition_leader_epoch)
                        self._records_replayed += 1
            self._machine.skip_to(header.last_offset, header.partition_leader_epoch)
        kept = len(self._machine.image.opaque)
        if kept:
            logger.warning(
                "the metadata log has %d records of types without effect so far (quotas, ACLs, tokens); they are kept",
                kept,
            )

    # Deciding and committing

    async def _run(self) -> None:
        try:
            while self._stopped is None:
                await self._wake.wait()
                self._wake.clear()
                while self._queue and self._stopped is None:
                    await self._commit_round()
        except Exception as error:
            # A disk error, or a record that contradicts the image: the image is not reliable in both cases.
            is_disk_error = isinstance(error, OSError)
            logger.critical(
                "the metadata log in %s failed, the node must stop: %s", self._log_dir, error,
                exc_info=not is_disk_error,
            )  # fmt: skip
            self._has_failed = True
            self._stop(_failure(self._log_dir, error))
            self._on_failure(error)

    async def _commit_round(self) -> None:
        commands = self._take_round()
        now_ms = self._env.clock.now_ms()
        try:
            results = [await self._decide(command, now_ms) for command, _ in commands]
            await self._persist()
        except Exception as error:
            failure = _failure(self._log_dir, error)
            for _, response in commands:
                _resolve(response, failure)
            raise
        await self._publish()
        # Errors wait too: they may be caused by another command of this round.
        for (_, response), result in zip(commands, results, strict=True):
            _resolve(response, result)
        self._maybe_snapshot()

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
        try:
            decision = self._machine.decide(command, now_ms)
        except KafkaError as error:
            return error
        except Exception as error:
            logger.exception("the controller could not decide %r", command)
            return error
        if len(decision.records) > RECORDS_ENCODED_ON_LOOP:
            records, version = decision.records, self._machine.image.metadata_version
            encoded = await self._env.threads.run(
                lambda: [encode_record(record, version) for record in records]
            )
            self._propose_encoded(records, encoded)
        elif decision.records:
            self._propose(decision.records)
        return decision

    def _propose(self, records: Sequence[MetadataRecord]) -> None:
        metadata_version = self._machine.image.metadata_version
        self._propose_encoded(records, [encode_record(record, metadata_version) for record in records])

    def _propose_encoded(self, records: Sequence[MetadataRecord], encoded: list[bytes]) -> None:
        entry = self._raft.propose(encoded)
        for index, record in enumerate(records):
            self._machine.replay(entry.base_offset + index, record, entry.epoch)

    async def _persist(self) -> None:
        """Writes what raft has ready, in the order that raft requires. Raises OSError if the disk fails."""
        ready = self._raft.ready(self._env.clock.now_ms())
        if ready is None:
            return
        while True:
            try:
                await self._write(ready)
                break
            except OSError as error:
                if is_disk_failure(error) or self._stopped is not None:
                    raise
                # Commands wait meanwhile; their records are not visible yet.
                logger.warning(
                    "%s", out_of_resources_message(f"writing the metadata log in {self._log_dir}", error)
                )
                await asyncio.sleep(RETRY_S)
        self._raft.advance(ready)

    async def _write(self, ready: Ready) -> None:
        """May be called again after it has failed."""
        if ready.hard_state is not None:
            state = ready.hard_state
            await self._env.threads.run(
                lambda: write_quorum_state(self._env.disk, self._log.directory, state, self._raft.voters)
            )
        now_ms = self._env.clock.now_ms()
        # The only voter has no leader to copy batches from.
        entries = [entry for entry in ready.entries if isinstance(entry, Entry)]
        self._bytes_since_snapshot += self._log.append(entries, now_ms)
        self._last_append_ms = now_ms
        work = self._log.prepare_flush()
        if work is not None:
            flush = work
            await self._env.threads.run(lambda: self._log.sync(flush))
            self._log.flushed(work)

    async def _publish(self) -> None:
        """Calls all subscribers in one turn of the event loop, and then awaits the work that they return."""
        old, new = self.image, self._machine.image
        if old is new:
            return
        self.image = new
        remaining = []
        for callback in self._subscribers:
            try:
                work = callback(old, new)
            except Exception:
                logger.exception("a subscriber failed on the metadata at offset %d", new.offset)
            else:
                if work is not None:
                    remaining.append(work)
        for work in remaining:
            try:
                await work
            except Exception:
                logger.exception("a subscriber failed on the metadata at offset %d", new.offset)

    def _stop(self, reason: KafkaError) -> None:
        if self._stopped is None:
            self._stopped = reason
        queue, self._queue = self._queue, []
        for _, response in queue:
            _resolve(response, reason)
        self._wake.set()

    # Snapshots

    def _maybe_snapshot(self) -> None:
        """Starts a snapshot in the background if one is due."""
        now_ms = self._env.clock.now_ms()
        settings = self._settings
        is_due = (
            self._bytes_since_snapshot >= settings.snapshot_bytes
            or self._records_replayed >= REPLAYED_RECORDS_MAX
            or 0 < settings.snapshot_interval_ms <= now_ms - self._snapshot_ms
        )
        latest = self._log.snapshots[-1].end_offset if self._log.snapshots else 0
        is_running = self._snapshot_task is not None and not self._snapshot_task.done()
        if is_due and latest <= self.image.offset and not is_running:
            self._bytes_since_snapshot = self._records_replayed = 0
            self._snapshot_ms = now_ms
            self._snapshot_task = asyncio.create_task(self._snapshot(self.image, now_ms), name="snapshot")
        self._log.remove_deleted(now_ms)

    async def _snapshot(self, image: MetadataImage, now_ms: int) -> None:
        snapshot = SnapshotId(image.offset + 1, image.epoch)
        appended_ms = self._last_append_ms

        def write() -> None:
            data = encode_snapshot(
                image_records(image),
                epoch=snapshot.epoch,
                last_contained_log_timestamp=appended_ms,
                now_ms=now_ms,
                metadata_version=image.metadata_version,
            )
            self._log.write_snapshot(snapshot, data)

        try:
            await self._env.threads.run(write)
            self._log.snapshots.append(snapshot)
            self._raft.snapshot_written(OffsetAndEpoch(snapshot.end_offset, snapshot.epoch))
            logger.info("wrote the metadata snapshot %s", snapshot.file_name)
            self._log.clean(self._settings, self._raft.high_watermark, now_ms)
            self._raft.log.discard_before(self._log.log_start_offset)
        except OSError:
            # The log is complete without the snapshot: the next one that is due retries.
            logger.exception("the metadata snapshot in %s could not be written", self._log_dir)


def _resolve(response: "asyncio.Future[Any]", result: ControllerDecision[Any] | Exception) -> None:
    if response.done():  # the caller was cancelled
        return
    if isinstance(result, Exception):
        response.set_exception(result)
    else:
        response.set_result(result.response)


def _failure(log_dir: str, error: Exception) -> KafkaError:
    return KafkaError(ErrorCode.kafka_storage_error, f"the metadata log in {log_dir} failed: {error}")
