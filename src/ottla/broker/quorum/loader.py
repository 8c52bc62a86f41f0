"""Applies the committed records of the metadata log to the image of this node, on every node and in every role.

The active controller has the images of its own records already: it offers them, and the loader takes the newest one
that is committed instead of reading the log again.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from ottla.broker.quorum.metadata_log import MetadataLog
from ottla.broker.quorum.snapshots import SnapshotId, decode_snapshot
from ottla.core.controller.image import MetadataImage
from ottla.core.controller.replay import MetadataReplay
from ottla.env import Env
from ottla.protocol.metadata_records.codec import decode_record

logger = logging.getLogger("ottla.quorum")

# A long log is replayed in parts, so that other tasks have their turn in between.
RECORDS_PER_TURN = 200
# Subscribers compare two images in one turn. So an image has not many more new records than this, unless they are one
# batch of the log.
RECORDS_PER_IMAGE = 1_000

# The result, if there is one, is awaited before the next image is published.
Subscriber = Callable[[MetadataImage, MetadataImage], Awaitable[None] | None]


class MetadataLoader:
    """`image` has the committed metadata, as far as the subscribers know it.

    Each of `subscribers` is called with the old and the new image, for every image, in order. `on_published` is called
    when they have applied it.
    """

    def __init__(
        self, env: Env, log: MetadataLog, subscribers: Sequence[Subscriber], on_published: Callable[[], None]
    ) -> None:
        self.image = MetadataImage()
        self.published_offset = self.image.offset  # all work of the subscribers is done
        # Of records that the log had when this node started.
        self.records_replayed = self.bytes_replayed = 0
        self.records_per_turn, self.pause_s = RECORDS_PER_TURN, 0.0  # simulations change them
        self._env = env
        self._log = log
        self._on_published = on_published
        self._replay = MetadataReplay(self.image)
        self._offered: deque[MetadataImage] = deque()
        self._subscribers = subscribers

    @property
    def applied_offset(self) -> int:
        """The last record that was read. Inside a transaction, it is not in the image yet."""
        return self._replay.offset

    @property
    def in_transaction(self) -> bool:
        """Whether the committed records end inside a metadata transaction (KIP-868)."""
        return self._replay.in_transaction

    @property
    def has_unpublished_snapshot(self) -> bool:
        return self.published_offset < self._replay.offset and not self._replay.in_transaction

    def offer(self, image: MetadataImage) -> None:
        """The active controller's image at an offset that is not committed yet."""
        self._offered.append(image)

    def withdraw_offers(self) -> None:
        """The controller has lost the leadership: its records may never be committed."""
        self._offered.clear()

    def load_snapshot(self, snapshot: SnapshotId) -> None:
        """Starts from a snapshot. Raises KafkaError if it is damaged, and OSError."""
        path = self._log.snapshot_path(snapshot)
        replay = MetadataReplay(MetadataImage())
        for record in decode_snapshot(self._env.disk.read_bytes(path), path):
            replay.replay(snapshot.end_offset - 1, record, snapshot.epoch)
        replay.skip_to(snapshot.end_offset - 1, snapshot.epoch)
        self._replay = replay

    async def apply(self, high_watermark: int) -> None:
        """Applies records below `high_watermark`, and returns when the subscribers have done their work.

        If there are very many it applies the first of them: the caller goes on until `applied_offset` says that it is
        done.

        Raises ReplayError for a record that contradicts the ones before it, and KafkaError for one that is unknown.
        """
        image = self._take_offer(high_watermark)
        if image is None:
            await self._replay_log(high_watermark)
            if self._replay.in_transaction:
                return  # its records take effect together
            image = self._replay.image
        await self._publish(image)

    def _take_offer(self, high_watermark: int) -> MetadataImage | None:
        taken = None
        while self._offered and self._offered[0].offset < high_watermark:
            taken = self._offered.popleft()
            if taken.offset - self.image.offset >= RECORDS_PER_IMAGE:
                break
        if taken is not None:
            self._replay = MetadataReplay(taken)
        return taken

    async def _replay_log(self, high_watermark: int) -> None:
        replay, start, in_turn = self._replay, self._replay.offset + 1, 0
        for batch in self._log.batches_from(start, high_watermark):
            header = batch.header
            records = (
                [] if header.is_control else [record for record in batch.records if record.offset >= start]
            )
            for record in records:
                decoded = decode_record(record.value or b"")
                replay.replay(record.offset, decoded, header.partition_leader_epoch)
                in_turn += 1
                if in_turn >= self.records_per_turn:
                    in_turn = 0
                    await asyncio.sleep(self.pause_s)
            replay.skip_to(header.last_offset, header.partition_leader_epoch)
            if header.base_offset < self._log.end_offset_at_open:
                self.records_replayed += len(records)
                self.bytes_replayed += header.size
            if header.last_offset - start >= RECORDS_PER_IMAGE:
                return
            if header.next_offset < self._log.log_start_offset:
                return  # a snapshot of the leader has replaced the log: the caller goes on with it

    async def _publish(self, new: MetadataImage) -> None:
        """Calls all subscribers in one turn of the event loop, and then awaits the work that they return."""
        old = self.image
        if new is not old:
            self.image = new
            remaining = []
            for subscriber in self._subscribers:
                try:
                    work = subscriber(old, new)
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
        self.published_offset = new.offset
        self._on_published()
