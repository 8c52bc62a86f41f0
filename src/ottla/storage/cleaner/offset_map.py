"""From the hash of a key to the last offset that it was written at: 24 bytes an entry, in the memory that is given.

Open addressing over three arrays. A Python dict would take five times the memory and a key at a time; here all
keys of a column look for their slots together, and those that found theirs taken try the next.
"""

import numpy as np
from numpy.typing import NDArray

from ottla.records.columns import Ints, Words

ENTRY_BYTES = 24
# The largest piece that is looked up together: its temporaries stay in the cache of the processor.
_PIECE = 1 << 14
# A map that has this share of its room left is full: filling it to the last entry would go key by key.
_RESERVE = 1 / 256


class OffsetMap:
    def __init__(self, memory_bytes: int, load_factor: float, keys_max: int) -> None:
        """`keys_max`: as many as can come. A small log does not take all of the memory."""
        affordable = max(memory_bytes // ENTRY_BYTES, 3)
        self.slots = _prime_up_to(min(affordable, max(int(keys_max / load_factor) + 64, 1024)))
        self.entries_max = max(int(self.slots * load_factor), 1)
        self.entries = 0
        self.latest_offset = -1  # of all that was looked at, with a key or without
        self._first = np.zeros(self.slots, np.uint64)
        self._second = np.zeros(self.slots, np.uint64)
        self._next_offsets = np.zeros(self.slots, np.int64)  # 0: free
        self._survivors: Ints | None = None
        self._divisor, self._step_divisor = np.uint64(self.slots), np.uint64(self.slots - 1)

    @property
    def is_full(self) -> bool:
        return self.entries_max - self.entries <= self.entries_max * _RESERVE

    def put(self, first: Words, second: Words, offsets: Ints) -> int:
        """Takes in keys, their offsets ascending; returns how many: fewer than there are where the map is full."""
        taken = 0
        while taken < len(offsets) and not self.is_full:
            until = taken + min(self.entries_max - self.entries, _PIECE)
            self._put_piece(first[taken:until], second[taken:until], offsets[taken:until])
            taken = min(until, len(offsets))
        return taken

    def get(self, first: Words, second: Words) -> Ints:
        """The offsets of the keys, -1 for those that are not there."""
        found = np.full(len(first), -1, np.int64)
        for start in range(0, len(first), _PIECE):
            piece = slice(start, start + _PIECE)
            self._get_piece(first[piece], second[piece], found[piece])
        return found

    def survivors(self) -> Ints:
        """Every offset in the map, ascending: of the records that were put, those stay. From here on no key is known.

        So the rest of a cleaning need not look for keys again, and the memory of their hashes is free.
        """
        if self._survivors is None:
            self._first = self._second = np.empty(0, np.uint64)
            next_offsets = self._next_offsets[self._next_offsets != 0]
            next_offsets.sort()
            self._next_offsets, self._survivors = np.empty(0, np.int64), next_offsets - 1
        return self._survivors

    def _put_piece(self, first: Words, second: Words, offsets: Ints) -> None:
        slots, steps = self._probe(first, second)
        while len(slots):
            free = self._next_offsets[slots] == 0
            if bool(free.any()):
                # Several keys may want one slot: the last of them gets all three fields, the others see it below.
                wanted, news = slots[free], offsets[free] + 1
                self._first[wanted], self._second[wanted] = first[free], second[free]
                self._next_offsets[wanted] = news
                self.entries += int(np.count_nonzero(self._next_offsets[wanted] == news))
            settled = (self._first[slots] == first) & (self._second[slots] == second)
            self._next_offsets[slots[settled]] = offsets[settled] + 1
            rest = ~settled
            slots, steps = self._advance(slots[rest], steps[rest])
            first, second, offsets = first[rest], second[rest], offsets[rest]

    def _get_piece(self, first: Words, second: Words, found: Ints) -> None:
        slots, steps = self._probe(first, second)
        rows = np.arange(len(first))
        while len(slots):
            next_offsets = self._next_offsets[slots]
            matches = (self._first[slots] == first) & (self._second[slots] == second) & (next_offsets != 0)
            found[rows[matches]] = next_offsets[matches] - 1
            rest = ~matches & (next_offsets != 0)
            slots, steps = self._advance(slots[rest], steps[rest])
            first, second, rows = first[rest], second[rest], rows[rest]

    def _probe(self, first: Words, second: Words) -> tuple[Ints, Ints]:
        """The first slot of each key and its step: with a prime number of slots any step comes by all of them."""
        slots: NDArray[np.int64] = (first % self._divisor).astype(np.int64)
        steps: NDArray[np.int64] = (second % self._step_divisor).astype(np.int64) + 1
        return slots, steps

    def _advance(self, slots: Ints, steps: Ints) -> tuple[Ints, Ints]:
        slots = slots + steps
        slots[slots >= self.slots] -= self.slots
        return slots, steps


def _prime_up_to(limit: int) -> int:
    candidate = limit
    while any(candidate % divisor == 0 for divisor in range(2, int(candidate**0.5) + 1)):
        candidate -= 1
    return candidate
