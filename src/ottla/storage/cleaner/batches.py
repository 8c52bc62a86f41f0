"""The headers of many batches as columns, read and changed where they lie."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ottla.records.columns import Ints
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
    """One for every position in `data` at which a header could begin; what is stored there changes `data`."""
    return np.ndarray((len(data) - HEADER_SIZE + 1,), _HEADER, data, strides=(1,))


class BatchColumns(NamedTuple):
    """One entry per batch, in the order of the log. Positions are in the buffer."""

    headers: Headers  # as they were when these columns were made
    positions: Ints
    ends: Ints
    base_offsets: Ints
    last_offsets: Ints
    attributes: Ints
    records_counts: Ints

    @classmethod
    def at(cls, data: Bytes, positions: list[int]) -> "BatchColumns":
        places = np.array(positions, np.int64)
        headers = headers_in(data)[places]
        base_offsets = headers["base_offset"].astype(np.int64)
        return cls(
            headers,
            places,
            places + headers["batch_length"] + LOG_OVERHEAD,
            base_offsets,
            base_offsets + headers["last_offset_delta"],
            headers["attributes"].astype(np.int64),
            headers["records_count"].astype(np.int64),
        )

    def __len__(self) -> int:
        return len(self.positions)

    def header(self, index: int) -> BatchHeader:
        return BatchHeader._make(self.headers[index].item())

    def of_transactions(self) -> list[int]:
        """The indexes of markers and of what they decide on."""
        found: list[int] = np.flatnonzero(self.attributes & (CONTROL_MASK | TRANSACTIONAL_MASK)).tolist()
        return found
