"""The faults of the links between hosts. A link has a direction: `a -> b` may fail while `b -> a` works.

Streams are TCP, so a cut or a lost segment delays their bytes. A segment that is lost too often resets the connection.
"""

import asyncio
from random import Random

Link = tuple[str, str]  # source and target

# TCP's first retransmission timeout, which doubles each time. Linux gives up after 15; fewer keep simulations short.
_RETRANSMISSION_S = 0.2
_RETRANSMISSIONS_MAX = 6
GIVE_UP_S = _RETRANSMISSION_S * (2 ** (_RETRANSMISSIONS_MAX + 1) - 1)


class Links:
    def __init__(self, random: Random) -> None:
        self._random = random
        self._cut: set[Link] = set()
        self._extra_s: dict[Link, float] = {}
        self._loss: dict[Link, float] = {}
        self._healed = asyncio.Event()

    def cut(self, source: str, target: str) -> None:
        self._cut.add((source, target))

    def slow(self, source: str, target: str, extra_ms: float) -> None:
        self._extra_s[source, target] = extra_ms / 1000

    def lose(self, source: str, target: str, probability: float) -> None:
        self._loss[source, target] = probability

    def heal(self, link: Link | None = None) -> None:
        """Ends the faults of `link`, or all faults."""
        if link is None:
            self._cut.clear()
            self._extra_s.clear()
            self._loss.clear()
        else:
            self._cut.discard(link)
            self._extra_s.pop(link, None)
            self._loss.pop(link, None)
        self._healed.set()
        self._healed = asyncio.Event()

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self._cut

    def delay_s(self, source: str, target: str) -> float | None:
        """The time that a segment needs beyond the usual latency. None if it is lost until the sender gives up."""
        delay_s = self._extra_s.get((source, target), 0.0)
        loss = self._loss.get((source, target))
        if loss is None:
            return delay_s
        timeout_s = _RETRANSMISSION_S
        for _ in range(_RETRANSMISSIONS_MAX + 1):
            if self._random.random() >= loss:
                return delay_s
            delay_s += timeout_s
            timeout_s *= 2
        return None

    async def wait_for_heal(self) -> None:
        await self._healed.wait()
