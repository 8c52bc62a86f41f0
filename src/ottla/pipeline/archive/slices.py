"""What a file has of each partition, in little memory: an archive that is not merged has millions of these numbers."""

from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

_WIDTH = 4


@dataclass(frozen=True, slots=True)
class Slice:
    """The content of a file from one partition: the first and the last offset, and the number of records."""

    first: int
    last: int
    records: int


class PackedSlices(Mapping[int, Slice]):
    """Slices by partition, 32 bytes each. Objects take five times as much."""

    __slots__ = ("_numbers",)

    def __init__(self, parts: Iterable[tuple[int, int, int, int]]) -> None:
        """Each is a partition, its first and last offset, and the number of records."""
        self._numbers = array("q", (number for part in parts for number in part))

    def __getitem__(self, partition: int) -> Slice:
        try:
            at = _WIDTH * self._numbers[::_WIDTH].index(partition)
        except ValueError:
            raise KeyError(partition) from None
        return Slice(*self._numbers[at + 1 : at + _WIDTH])

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers[::_WIDTH])

    def __len__(self) -> int:
        return len(self._numbers) // _WIDTH
