"""A 16-byte hash, as two words, for every key of a column. Keys with equal hashes are taken for equal.

Kafka uses MD5, one key at a time. This hash consists of multiplications and shifts, which numpy does for thousands of
keys at once. Its seed is random for every cleaning, so that nobody can construct keys that collide.
"""

import numpy as np

from ottla.records.columns import Ints, RecordBuffer, Words

_FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
_FINAL = np.uint64(0xFF51AFD7ED558CCD)
_SHIFT_FIRST, _SHIFT_SECOND, _SHIFT_FINAL = np.uint64(29), np.uint64(31), np.uint64(33)
_ONE = np.uint64(1)
_WORD_BYTES = 8
# By the number of key bytes in a word: the mask of their bits.
_MASKS = np.array([(1 << (8 * count)) - 1 for count in range(_WORD_BYTES + 1)], np.uint64)


def hash_keys(buffer: RecordBuffer, positions: Ints, lengths: Ints, seed: int) -> tuple[Words, Words]:
    """Hashes the keys at `positions`. No length may be negative (a null key). The second word is never zero."""
    as_words = lengths.astype(np.uint64)
    first = (as_words ^ np.uint64(seed & 0xFFFFFFFFFFFFFFFF)) * _FIRST
    second = (as_words + np.uint64(seed >> 64 & 0xFFFFFFFFFFFFFFFF)) * _SECOND
    if not len(lengths):
        return first, second
    shortest, longest = int(lengths.min()), int(lengths.max())
    for done in range(0, shortest - shortest % _WORD_BYTES, _WORD_BYTES):
        _mix(first, second, buffer.words[positions + done])
    done = shortest - shortest % _WORD_BYTES
    while done < longest:
        rows = np.flatnonzero(lengths > done)
        word = buffer.words[positions[rows] + done] & _MASKS[np.minimum(lengths[rows] - done, _WORD_BYTES)]
        if len(rows) == len(first):
            _mix(first, second, word)
        else:
            part_first, part_second = first[rows], second[rows]
            _mix(part_first, part_second, word)
            first[rows], second[rows] = part_first, part_second
        done += _WORD_BYTES
    for words in (first, second):
        words ^= words >> _SHIFT_FINAL
        words *= _FINAL
        words ^= words >> _SHIFT_FIRST
    second |= _ONE
    return first, second


def _mix(first: Words, second: Words, word: Words) -> None:
    first ^= word
    first *= _FIRST
    first ^= first >> _SHIFT_FIRST
    second += word
    second *= _SECOND
    second ^= second >> _SHIFT_SECOND
