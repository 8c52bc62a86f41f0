"""A snapshot from the leader is in the directory before the step that writes it has ended."""

import asyncio
from types import SimpleNamespace
from typing import Any

from ottla.broker.quorum.quorum import Quorum
from ottla.broker.quorum.snapshots import SnapshotId


class Loader:
    has_unpublished_snapshot = False

    def __init__(self) -> None:
        self.applied_offset = 40
        self.done: list[object] = []

    def load_snapshot(self, snapshot: SnapshotId) -> None:
        self.done.append(snapshot)
        self.applied_offset = snapshot.end_offset - 1

    async def apply(self, high_watermark: int) -> None:
        self.done.append(high_watermark)


def test_a_snapshot_is_published_when_the_high_watermark_is_at_its_end() -> None:
    """Otherwise a broker would serve records that its own log does not know to be committed."""
    quorum: Any = Quorum.__new__(Quorum)
    snapshot, loader = SnapshotId(91, 1), Loader()
    node = SimpleNamespace(high_watermark=50)
    quorum._stopped, quorum.loader, quorum.driver = None, loader, SimpleNamespace(node=node)
    quorum._log = SimpleNamespace(snapshots=[snapshot], log_start_offset=91)
    quorum._snapshots = SimpleNamespace(maybe_write=lambda: None)
    asyncio.run(quorum._load())
    assert loader.done == []
    node.high_watermark = 91
    asyncio.run(quorum._load())
    assert loader.done[0] == snapshot
