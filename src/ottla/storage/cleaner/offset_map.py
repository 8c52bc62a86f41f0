"""Maps the hash of a key to its last offset, with 24 bytes per entry, in a fixed amount of memory.

It is a hash table with open addressing over three arrays. All keys of a column are looked up together; those whose
slot is taken try their next slot. A Python dict would need five times the memory and look up one key at a time.
"""

import numpy as np
from numpy.typing import NDArray

from ottla.records.columns import Ints, Words

ENTRY_BYTES = 24
# Keys that are looked up together: few enough that temporary arrays stay in the processor's cache.
_BLOCK_KEYS = 1 << 14
# The map counts as full with this share of entries left, because the last ones would be added key by key.
_RESERVE = 1 / 256
# The second word of a free slot. No key has it as its hash.
_FREE = np.uint64(0)


class OffsetMap:
    def __init__(self, memory_bytes: int, load_factor: float, keys_max: int) -> None:
        """`keys_max`: the greatest possible number of keys. With few keys, not all of the memory is used."""
        affordable = max(memory_bytes // ENTRY_BYTES, 3)
        self.slots = _prime_up_to(min(affordable, max(int(keys_max / load_factor) + 64, 1024)))
        self.entries_max = max(int(self.slots * load_factor), 1)
        self.entries = 0
        self.latest_offset = -1  # of all records seen, with or without a key
        self._first = np.zeros(self.slots, np.uint64)
        self._second = np.zeros(self.slots, np.uint64)
        self._next_offsets = np.zeros(self.slots, np.int64)
        self._surviving_offsets: Ints | None = None
        self._divisor, self._step_divisor = np.uint64(self.slots), np.uint64(self.slots - 1)

    @property
    def is_full(self) -> bool:
        return self.entries_max - self.entries <= self.entries_max * _RESERVE

    def put(self, first: Words, second: Words, offsets: Ints) -> int:
        """Adds keys in the order of their offsets. Returns how many were added: fewer than given if the map is full."""
        added = 0
        while added < len(offsets) and not self.is_full:
            until = added + min(self.entries_max - self.entries, _BLOCK_KEYS)
            self._put_block(first[added:until], second[added:until], offsets[added:until])
            added = min(until, len(offsets))
        return added

    def get(self, first: Words, second: Words) -> Ints:
        """The offsets of the keys; -1 for keys that are not in the map."""
        found = np.full(len(first), -1, np.int64)
        for start in range(0, len(first), _BLOCK_KEYS):
            block = slice(start, start + _BLOCK_KEYS)
            self._get_block(first[block], second[block], found[block])
        return found

    def surviving_offsets(self) -> Ints:
        """All offsets in the map, ascending: of the records that were put, compaction keeps these.

        The first call frees the hashes, so that `put` and `get` cannot be used any more.
        """
        if self._surviving_offsets is None:
            self._first = self._second = np.empty(0, np.uint64)
            next_offsets = self._next_offsets[self._next_offsets != 0]
            next_offsets.sort()
            self._next_offsets, self._surviving_offsets = np.empty(0, np.int64), next_offsets - 1
        return self._surviving_offsets

    def _put_block(self, first: Words, second: Words, offsets: Ints) -> None:
        slots, steps = self._probe(first, second)
        next_offsets = offsets + 1
        while len(slots):
            held = self._second[slots]
            is_match = (held == second) & (self._first[slots] == first)
            if bool(is_match.all()):
                self._next_offsets[slots] = next_offsets
                return
            self._next_offsets[slots[is_match]] = next_offsets[is_match]
            rest = np.flatnonzero(~is_match)
            slots, steps, is_free = slots[rest], steps[rest], held[rest] == _FREE
            first, second, next_offsets = first[rest], second[rest], next_offsets[rest]
            # Several keys may want the same free slot. The last one gets it, and all of them look at it again.
            self._occupy(np.flatnonzero(is_free), slots, first, second)
            slots = self._advance(slots, np.where(is_free, 0, steps))

    def _occupy(self, rows: Ints, slots: Ints, first: Words, second: Words) -> None:
        if len(rows):
            wanted = slots[rows]
            self._first[wanted], self._second[wanted] = first[rows], second[rows]
            # Each slot now holds the number of one row, so that each slot is counted once.
            self._next_offsets[wanted] = rows
            self.entries += int(np.count_nonzero(self._next_offsets[wanted] == rows))

    def _get_block(self, first: Words, second: Words, found: Ints) -> None:
        slots, steps = self._probe(first, second)
        rows = np.arange(len(first))
        while len(slots):
            held = self._second[slots]
            is_match = (held == second) & (self._first[slots] == first)
            found[rows[is_match]] = self._next_offsets[slots[is_match]] - 1
            rest = np.flatnonzero(~is_match & (held != _FREE))
            slots, steps = self._advance(slots[rest], steps[rest]), steps[rest]
            first, second, rows = first[rest], second[rest], rows[rest]

    def _probe(self, first: Words, second: Words) -> tuple[Ints, Ints]:
        """The first slot of each key, and its step. The number of slots is prime, so any step visits all slots."""
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
