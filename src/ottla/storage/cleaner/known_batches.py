"""Where the batches of a segment lie, as the first pass over it found them, for the second."""

from typing import NamedTuple

import numpy as np

from ottla.records.columns import Ints, Mask
from ottla.records.header import CONTROL_MASK, TRANSACTIONAL_MASK
from ottla.storage.cleaner.batches import BatchColumns


class KnownBatches(NamedTuple):
    """One entry per batch, in the order of the log. Positions are in the file."""

    positions: Ints
    ends: Ints
    base_offsets: Ints
    last_offsets: Ints
    records_counts: Ints
    is_plain: Mask  # neither a marker nor of a transaction

    @classmethod
    def at(cls, batches: BatchColumns, position: int) -> "KnownBatches":
        """Those of a buffer that begins with this position of the file."""
        return cls(
            batches.positions + position,
            batches.ends + position,
            batches.base_offsets,
            batches.last_offsets,
            batches.records_counts,
            batches.attributes & (CONTROL_MASK | TRANSACTIONAL_MASK) == 0,
        )

    @classmethod
    def together(cls, parts: "list[KnownBatches]") -> "KnownBatches":
        return cls(*map(np.concatenate, zip(*parts, strict=True)))

    def __len__(self) -> int:
        return len(self.positions)


def joined(starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """Stretches in order, none of which overlap: those that meet as one."""
    is_apart = np.ones(len(starts) + 1, np.bool_)
    np.not_equal(starts[1:], ends[:-1], out=is_apart[1 : len(starts)])
    return starts[is_apart[:-1]], ends[is_apart[1:]]
