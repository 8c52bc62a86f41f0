"""The events of a run: a digest to compare runs, and the last lines for a person to read."""

import hashlib
from collections import deque
from collections.abc import Callable

_TAIL_LINES = 2_000


class Trace:
    def __init__(self, time_s: Callable[[], float], tail_lines: int = _TAIL_LINES) -> None:
        self._time_s = time_s
        self._tail: deque[str] = deque(maxlen=tail_lines)
        self._digest = hashlib.blake2b(digest_size=16)
        self.lines = 0

    def note(self, text: str) -> None:
        line = f"{self._time_s():12.6f} {text}"
        self._digest.update(line.encode())
        self._tail.append(line)
        self.lines += 1

    def remark(self, text: str) -> None:
        """Adds a line that is not part of the digest: log messages may differ from run to run."""
        self._tail.append(f"{self._time_s():12.6f}   | {text}")

    def digest(self) -> str:
        return self._digest.hexdigest()

    def tail(self, lines: int) -> list[str]:
        return list(self._tail)[-lines:]
