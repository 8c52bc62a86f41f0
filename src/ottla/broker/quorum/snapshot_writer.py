"""Writes snapshots of the metadata in the background, and cleans the log before them (KIP-630)."""

import asyncio
import logging

from ottla.broker.quorum.loader import MetadataLoader
from ottla.broker.quorum.metadata_log import MetadataLog
from ottla.broker.quorum.raft_driver import RaftDriver
from ottla.broker.quorum.settings import QuorumSettings
from ottla.broker.quorum.snapshots import SnapshotId, encode_snapshot
from ottla.core.controller.image import MetadataImage
from ottla.core.controller.snapshot import image_records
from ottla.core.raft.log_state import OffsetAndEpoch
from ottla.env import Env

logger = logging.getLogger("ottla.quorum")

# If a start had to replay more records after the last snapshot, it writes a new one at once.
REPLAYED_RECORDS_MAX = 5_000


class SnapshotWriter:
    def __init__(
        self, env: Env, settings: QuorumSettings, log: MetadataLog, driver: RaftDriver, loader: MetadataLoader
    ) -> None:
        self._env = env
        self._settings = settings
        self._log = log
        self._driver = driver
        self._loader = loader
        self._bytes_at_snapshot = 0
        self._last_ms = self._env.clock.monotonic_ms() - self._age_of_last_snapshot_ms()
        self._task: asyncio.Task[None] | None = None

    def _age_of_last_snapshot_ms(self) -> int:
        if not self._log.snapshots:
            return 0
        written_ms = self._env.disk.modified_ms(self._log.snapshot_path(self._log.snapshots[-1]))
        return max(0, self._env.clock.now_ms() - written_ms)

    def maybe_write(self) -> None:
        """Starts a snapshot if one is due."""
        now_ms, elapsed_ms = self._env.clock.now_ms(), self._env.clock.monotonic_ms() - self._last_ms
        settings, log, loader = self._settings, self._log, self._loader
        log_bytes = log.appended_bytes + loader.bytes_replayed
        is_due = (
            log_bytes - self._bytes_at_snapshot >= settings.snapshot_bytes
            or loader.records_replayed >= REPLAYED_RECORDS_MAX
            or 0 < settings.snapshot_interval_ms <= elapsed_ms
        )
        latest = log.snapshots[-1].end_offset if log.snapshots else 0
        is_running = self._task is not None and not self._task.done()
        if is_due and latest <= loader.image.offset and not is_running:
            self._bytes_at_snapshot, loader.records_replayed = log_bytes, 0
            self._last_ms += elapsed_ms
            self._task = asyncio.create_task(self._write(loader.image, now_ms), name="snapshot")
        log.remove_deleted(now_ms)

    async def close(self) -> None:
        """Waits for a snapshot that is being written."""
        if self._task is not None:
            await self._task

    async def _write(self, image: MetadataImage, now_ms: int) -> None:
        snapshot = SnapshotId(image.offset + 1, image.epoch)
        appended_ms = self._log.last_append_ms
        membership = self._driver.node.history.before(snapshot.end_offset)

        def write() -> None:
            data = encode_snapshot(
                image_records(image),
                epoch=snapshot.epoch,
                last_contained_log_timestamp=appended_ms,
                now_ms=now_ms,
                metadata_version=image.metadata_version,
                membership=membership,
            )
            self._log.write_snapshot(snapshot, data)

        try:
            await self._env.threads.run(write)
            if self._is_superseded(snapshot):
                return
            self._log.snapshots.append(snapshot)
            self._driver.snapshot_written(OffsetAndEpoch(snapshot.end_offset, snapshot.epoch))
            logger.info("wrote the metadata snapshot %s", snapshot.file_name)
            try:
                self._log.clean(self._settings, self._driver.node.high_watermark, now_ms)
            finally:
                # The start may have moved before an error: raft must not send followers to records before it.
                self._driver.log_cleaned(self._log.log_start_offset)
        except OSError:
            # The log is complete without the snapshot: the next one that is due retries.
            logger.exception("the metadata snapshot in %s could not be written", self._log.directory)

    def _is_superseded(self, snapshot: SnapshotId) -> bool:
        """Whether the leader has sent a snapshot meanwhile. An older one of this node is removed. Raises OSError."""
        latest = self._log.snapshots[-1] if self._log.snapshots else None
        if latest is None or latest.end_offset < snapshot.end_offset:
            return False
        if latest != snapshot:
            self._env.disk.remove(self._log.snapshot_path(snapshot))
        return True
