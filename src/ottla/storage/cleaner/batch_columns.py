"""The headers of many batches as numpy columns."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ottla.records.columns import Ints, Mask
from ottla.records.header import (
    CONTROL_MASK,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    TRANSACTIONAL_MASK,
    BatchHeader,
    Bytes,
)

_CODES = {"q": ">i8", "i": ">i4", "b": "i1", "I": ">u4", "h": ">i2"}
_HEADER = np.dtype(
    [(name, _CODES[code]) for name, code in zip(BatchHeader._fields, HEADER.format[1:], strict=True)]
)

Headers = NDArray[np.void]


def headers_in(data: Bytes) -> Headers:
    """A view with a header at every position of `data`. Storing into the view changes `data`."""
    return np.ndarray((len(data) - HEADER_SIZE + 1,), _HEADER, data, strides=(1,))


class BatchColumns(NamedTuple):
    """One entry per batch, in the order of the log. Positions are relative to the buffer."""

    headers: Headers  # a copy: later changes of the buffer do not show here
    positions: Ints
    ends: Ints
    base_offsets: Ints
    last_offsets: Ints
    attributes: Ints
    records_counts: Ints

    @classmethod
    def at(cls, data: Bytes, positions: list[int]) -> "BatchColumns":
        starts = np.array(positions, np.int64)
        headers = headers_in(data)[starts]
        base_offsets = headers["base_offset"].astype(np.int64)
        return cls(
            headers,
            starts,
            starts + headers["batch_length"] + LOG_OVERHEAD,
            base_offsets,
            base_offsets + headers["last_offset_delta"],
            headers["attributes"].astype(np.int64),
            headers["records_count"].astype(np.int64),
        )

    def __len__(self) -> int:
        return len(self.positions)

    def header(self, index: int) -> BatchHeader:
        return BatchHeader._make(self.headers[index].item())

    def transactional(self) -> list[int]:
        """The indexes of transactional batches and of control batches."""
        found: list[int] = np.flatnonzero(self.attributes & (CONTROL_MASK | TRANSACTIONAL_MASK)).tolist()
        return found


class ScannedBatches(NamedTuple):
    """The batches of a segment as the first pass found them, so that the second pass can skip some.

    One entry per batch, in the order of the log. Positions are relative to the file.
    """

    positions: Ints
    ends: Ints
    base_offsets: Ints
    last_offsets: Ints
    records_counts: Ints
    is_plain: Mask  # neither transactional nor a control batch

    @classmethod
    def of_buffer(cls, batches: BatchColumns, position: int) -> "ScannedBatches":
        """The batches of a buffer that begins at `position` of the file."""
        return cls(
            batches.positions + position,
            batches.ends + position,
            batches.base_offsets,
            batches.last_offsets,
            batches.records_counts,
            batches.attributes & (CONTROL_MASK | TRANSACTIONAL_MASK) == 0,
        )

    @classmethod
    def concatenate(cls, parts: "list[ScannedBatches]") -> "ScannedBatches":
        return cls(*map(np.concatenate, zip(*parts, strict=True)))

    def __len__(self) -> int:
        return len(self.positions)


def merge_adjacent(starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """Merges ranges that touch. The ranges are sorted and do not overlap."""
    is_apart = np.ones(len(starts) + 1, np.bool_)
    np.not_equal(starts[1:], ends[:-1], out=is_apart[1 : len(starts)])
    return starts[is_apart[:-1]], ends[is_apart[1:]]
