"""Gives the partitions that nobody owns to those who have least."""

from collections.abc import Iterable
from heapq import heapify, heapreplace

from ottla.core.groups.assignors.draft import NOBODY, Draft
from ottla.core.groups.topics import TopicInfo


def fill(draft: Draft, topics: Iterable[TopicInfo]) -> None:
    """Each partition goes to the subscriber with the fewest, so that a topic's partitions are spread as well."""
    loads = draft.loads
    heap: list[tuple[int, int]] = []
    heap_of: list[int] | None = None
    for topic in topics:
        owners, subscribers = draft.owners[topic.topic_id], draft.subscribers[topic.topic_id]
        free = [partition for partition, owner in enumerate(owners) if owner == NOBODY]
        if free and subscribers is not heap_of:
            heap, heap_of = [(loads[number], number) for number in subscribers], subscribers
            heapify(heap)
        for partition in free:
            load, number = heap[0]
            heapreplace(heap, (load + 1, number))
            owners[partition] = number
            loads[number] = load + 1
