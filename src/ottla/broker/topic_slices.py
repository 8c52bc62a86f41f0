"""Runs requests that name partitions by topic in slices of the fair scheduler; large topics take several slices.

The response has each topic once, in the order of the request.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple, Protocol, TypeVar

from ottla.broker.fair_scheduler import FairScheduler
from ottla.broker.promise import Promise


class Topic(Protocol):
    @property
    def partitions(self) -> Sequence[Any]: ...


TopicT = TypeVar("TopicT", bound=Topic)
PartitionT = TypeVar("PartitionT")
ResultT = TypeVar("ResultT")
TopicResultT = TypeVar("TopicResultT")

PARTITIONS_PER_SLICE = 100


class _Slice(NamedTuple):
    topic: int
    partitions: slice
    is_whole_topic: bool


def run_by_topic(
    scheduler: FairScheduler,
    topics: Sequence[TopicT],
    work: "Callable[[TopicT, PartitionT], ResultT]",
    topic_result: "Callable[[TopicT, tuple[ResultT, ...]], TopicResultT]",
) -> Promise[list[TopicResultT]]:
    """Calls `work` for each partition of each topic, and `topic_result` with the results of each topic."""

    def run_slice(part: _Slice) -> Any:
        topic = topics[part.topic]
        results = [work(topic, partition) for partition in topic.partitions[part.partitions]]
        return topic_result(topic, tuple(results)) if part.is_whole_topic else results

    def merge(done: list[Any]) -> list[TopicResultT]:
        merged: list[TopicResultT] = []
        parts: list[list[ResultT]] = []
        for index, (part, result) in enumerate(zip(slices, done, strict=True)):
            if part.is_whole_topic:
                merged.append(result)
                continue
            parts.append(result)
            if index + 1 == len(slices) or slices[index + 1].topic != part.topic:
                merged.append(topic_result(topics[part.topic], tuple(chain.from_iterable(parts))))
                parts = []
        return merged

    slices = list(_slices(len(topic.partitions) for topic in topics))
    return scheduler.run(slices, run_slice).then(merge)


def _slices(lengths: Iterable[int]) -> Iterator[_Slice]:
    step = PARTITIONS_PER_SLICE
    for topic, length in enumerate(lengths):
        if length <= step:
            yield _Slice(topic, slice(0, length), is_whole_topic=True)
        else:
            for start in range(0, length, step):
                yield _Slice(topic, slice(start, start + step), is_whole_topic=False)
