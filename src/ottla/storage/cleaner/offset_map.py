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
# What stands in a free slot for the second word of a hash, which no key has.
_FREE = np.uint64(0)


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
        self._next_offsets = np.zeros(self.slots, np.int64)
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
        next_offsets = offsets + 1
        while len(slots):
            held = self._second[slots]
            is_own = (held == second) & (self._first[slots] == first)
            if bool(is_own.all()):
                self._next_offsets[slots] = next_offsets
                return
            self._next_offsets[slots[is_own]] = next_offsets[is_own]
            rest = np.flatnonzero(~is_own)
            slots, steps, is_free = slots[rest], steps[rest], held[rest] == _FREE
            first, second, next_offsets = first[rest], second[rest], next_offsets[rest]
            # Several keys may want one free slot: the last of them gets it. Whoever wanted it looks at it again.
            self._take(np.flatnonzero(is_free), slots, first, second)
            slots = self._advance(slots, np.where(is_free, 0, steps))

    def _take(self, rows: Ints, slots: Ints, first: Words, second: Words) -> None:
        if len(rows):
            wanted = slots[rows]
            self._first[wanted], self._second[wanted] = first[rows], second[rows]
            # In each slot one row has left its number: so many are taken now.
            self._next_offsets[wanted] = rows
            self.entries += int(np.count_nonzero(self._next_offsets[wanted] == rows))

    def _get_piece(self, first: Words, second: Words, found: Ints) -> None:
        slots, steps = self._probe(first, second)
        rows = np.arange(len(first))
        while len(slots):
            held = self._second[slots]
            is_own = (held == second) & (self._first[slots] == first)
            found[rows[is_own]] = self._next_offsets[slots[is_own]] - 1
            rest = np.flatnonzero(~is_own & (held != _FREE))
            slots, steps = self._advance(slots[rest], steps[rest]), steps[rest]
            first, second, rows = first[rest], second[rest], rows[rest]

    def _probe(self, first: Words, second: Words) -> tuple[Ints, Ints]:
        """The first slot of each key and its step: with a prime number of slots any step comes by all of them."""
        slots: NDArray[np.int64] = (first % self._divisor).astype(np.int64)
        steps: NDArray[np.int64] = (second % self._step_divisor).astype(np.int64) + 1
        return slots, steps

    def _advance(self, slots: Ints, steps: Ints) -> Ints:
        slots = slots + steps
        slots[slots >= self.slots] -= self.slots
        return slots


def _prime_up_to(limit: int) -> int:
    candidate = limit
    while any(candidate % divisor == 0 for divisor in range(2, int(candidate**0.5) + 1)):
        candidate -= 1
    return candidate
