"""How much one batch of an archive takes, and into how many tasks it is divided. Each task writes a file per hour."""

import math
from dataclasses import dataclass

_MB = 1 << 20
# A batch that fails runs again as a whole, so it must not take hours. Its offsets alone do not say how long it takes.
_BATCH_BYTES_MAX = 4096 * _MB
# More cores get work only if each of them has this much: small tasks make small files, and each range costs 15 ms.
_TASK_BYTES_MIN = 32 * _MB
# A task may have to sort this much.
_TASK_BYTES_MAX = 128 * _MB
# If the topics have no record yet.
_UNKNOWN_RECORD_BYTES = 200.0


@dataclass(frozen=True)
class Sizing:
    """`record_bytes` is the mean size of a record; None if it is not known."""

    record_bytes: float | None
    cores: int

    def offsets_per_batch(self, offsets_max: int) -> int:
        return max(1, min(offsets_max, math.floor(_BATCH_BYTES_MAX / self._bytes)))

    def offsets_per_range(self) -> int:
        """How many offsets are read in one go. A task writes the records of one or several such ranges."""
        return max(1, math.floor(_TASK_BYTES_MIN / self._bytes))

    def tasks(self, offsets: int) -> int:
        """One for each core or a multiple of that, if there is enough for all of them."""
        size = offsets * self._bytes
        wanted = max(1, math.ceil(size / _TASK_BYTES_MIN))
        if wanted < self.cores:
            return wanted
        return self.cores * max(1, math.ceil(size / _TASK_BYTES_MAX / self.cores))

    @property
    def _bytes(self) -> float:
        return max(1.0, self.record_bytes or _UNKNOWN_RECORD_BYTES)
