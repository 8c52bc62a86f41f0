"""The events of a run: a digest to compare runs, and the last lines for a person to read."""

import hashlib
from collections import deque
from collections.abc import Callable

_TAIL_LINES = 2_000
_LINES_PER_UPDATE = 500


class Trace:
    def __init__(self, time_s: Callable[[], float], tail_lines: int = _TAIL_LINES) -> None:
        self._time_s = time_s
        self._tail: deque[str] = deque(maxlen=tail_lines)
        self._digest = hashlib.blake2b(digest_size=16)
        self._not_digested: list[str] = []
        self.lines = 0

    @property
    def now_s(self) -> float:
        """The virtual time, also after the run."""
        return self._time_s()

    def note(self, text: str) -> None:
        line = f"{self._time_s():12.6f} {text}"
        self._tail.append(line)
        self._not_digested.append(line)
        if len(self._not_digested) >= _LINES_PER_UPDATE:
            self._update_digest()
        self.lines += 1

    def remark(self, text: str) -> None:
        """Adds a line that is not part of the digest: log messages may differ from run to run."""
        self._tail.append(f"{self._time_s():12.6f}   | {text}")

    def _update_digest(self) -> None:
        self._digest.update("".join(self._not_digested).encode())
        self._not_digested.clear()

    def digest(self) -> str:
        self._update_digest()
        return self._digest.hexdigest()

    def tail(self, lines: int) -> list[str]:
        return list(self._tail)[-lines:]
