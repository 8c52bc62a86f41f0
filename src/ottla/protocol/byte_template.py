"""Templates of byte strings that differ only in numbers at fixed positions.

All numbers are read or written together, with a few operations on large integers, however many there are.
"""

from collections.abc import Sequence
from struct import Struct

from ottla.records.header import Bytes


class ByteTemplate:
    """Made from a sample. `fields` (in the syntax of struct) are at each of the ascending `positions`.

    At each of `stamp_positions` is the same number of 8 bytes, for example a timestamp.
    """

    __slots__ = ("_fixed", "_layout", "_mask", "_size", "_stamps")

    def __init__(
        self, sample: bytes, positions: Sequence[int], fields: str, stamp_positions: Sequence[int] = ()
    ) -> None:
        size = Struct(f">{fields}").size
        mask = bytearray(b"\xff" * len(sample))
        layout = [">"]
        end = 0
        for position in positions:
            layout.append(f"{position - end}x{fields}")
            end = position + size
            mask[position:end] = bytes(size)
        for position in stamp_positions:
            mask[position : position + 8] = bytes(8)
        self._size = len(sample)
        self._layout = Struct("".join((*layout, f"{len(sample) - end}x")))
        self._mask = int.from_bytes(mask, "big")
        self._fixed = int.from_bytes(sample, "big") & self._mask
        self._stamps = sum(1 << 8 * (len(sample) - position - 8) for position in stamp_positions)

    def matches(self, data: Bytes) -> bool:
        """Whether `data` differs from the sample only in the numbers."""
        return len(data) == self._size and int.from_bytes(data, "big") & self._mask == self._fixed

    def read(self, data: Bytes) -> tuple[int, ...]:
        """The numbers in `data`, which must match."""
        return self._layout.unpack(data)

    def fill(self, numbers: Sequence[int], stamp: int = 0) -> bytes:
        """The sample with these numbers instead of its own."""
        filled = int.from_bytes(self._layout.pack(*numbers), "big") | self._fixed | stamp * self._stamps
        return filled.to_bytes(self._size, "big")
