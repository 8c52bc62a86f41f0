"""Collectors write the samples of metrics when a client asks for them.

A collector with many samples, as one with samples for each partition, divides its work into items. Whoever runs it may
do something else between two items, so that a long text blocks nobody.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from ottla.metrics.family import Family
from ottla.metrics.text import line

ItemT = TypeVar("ItemT")


class Collection(ABC, Generic[ItemT]):
    """The work for one text. The methods return a string of samples for each family of the collector, in order."""

    items: Sequence[ItemT] = ()

    @abstractmethod
    def collect(self, item: ItemT) -> Sequence[str]:
        """The samples of one item. It takes much less than a millisecond."""

    @abstractmethod
    def finish(self) -> Sequence[str]:
        """The samples that are known when all items are collected."""


class Collector(ABC):
    families: tuple[Family, ...]

    @abstractmethod
    async def start(self) -> Collection[Any]: ...


class GaugeCollector(Collector):
    """Reads all of its metrics at once: `read` returns the values by name. Labels may follow a name, as in a sample."""

    def __init__(self, families: tuple[Family, ...], read: Callable[[], Mapping[str, float]]) -> None:
        self.families = families
        self._read = read

    async def start(self) -> Collection[None]:
        return _Reading(self.families, self._read)


class _Reading(Collection[None]):
    def __init__(self, families: tuple[Family, ...], read: Callable[[], Mapping[str, float]]) -> None:
        self._families = families
        self._read = read

    def collect(self, item: None) -> Sequence[str]:
        raise AssertionError("there are no items")

    def finish(self) -> Sequence[str]:
        by_name: dict[str, list[str]] = {family.name: [] for family in self._families}
        for sample, value in self._read().items():
            name, brace, rest = sample.partition("{")
            by_name[name].append(line(name, brace + rest, value))
        return ["".join(lines) for lines in by_name.values()]
