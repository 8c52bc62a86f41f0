"""`uniform` where subscriptions differ: as balanced as they allow.

Who owns what is a matching of partitions with subscribers, and a load is balanced best when no partition can be handed
on from member to member, one hop or several, so that the first one had two more than the last (Harvey et al., "Semi-
matchings for bipartite graphs and load balancing"). Single hops are found topic by topic, which does nearly all;
a search for what takes several hops does the rest.
"""

from collections import deque
from heapq import heapify, heappop, heapreplace
from uuid import UUID

from ottla.core.groups.assignors.draft import Draft
from ottla.core.groups.assignors.filling import fill
from ottla.core.groups.topics import TopicInfo


def balance(draft: Draft) -> None:
    topics = narrowest_first(draft)
    fill(draft, topics)
    for topic in topics:
        balance_topic(draft, topic)
    Paths(draft).balance()


def narrowest_first(draft: Draft) -> list[TopicInfo]:
    """Topics with most partitions for each subscriber first: those with more choice even out what they leave."""

    def width(topic: TopicInfo) -> tuple[float, int]:
        subscribers = len(draft.subscribers[topic.topic_id])
        return -topic.num_partitions / subscribers, subscribers

    return sorted(draft.topics.values(), key=width)


def balance_topic(draft: Draft, topic: TopicInfo) -> None:
    """Moves partitions of the topic from who has most to who has least, while they are two apart or more."""
    loads = draft.loads
    takers = [(loads[number], number) for number in draft.subscribers[topic.topic_id]]
    if max(takers)[0] - min(takers)[0] < 2:
        return
    owned = partitions_by_owner(draft, topic)
    givers = [(-loads[number], number) for number in owned]
    heapify(takers)
    heapify(givers)
    while givers:
        giver, taker = givers[0][1], takers[0][1]
        if loads[giver] - loads[taker] < 2:
            return
        draft.give(topic.topic_id, owned[giver].pop(), taker)
        heapreplace(takers, (loads[taker], taker))
        if owned[giver]:
            heapreplace(givers, (-loads[giver], giver))
        else:
            heappop(givers)


def partitions_by_owner(draft: Draft, topic: TopicInfo) -> dict[int, list[int]]:
    """The last in each list is the first to go: those without a replica in the member's rack."""
    owned: dict[int, list[int]] = {}
    for partition, owner in enumerate(draft.owners[topic.topic_id]):
        owned.setdefault(owner, []).append(partition)
    if topic.racks:
        for partitions in owned.values():
            partitions.sort(key=lambda partition: not draft.is_in_rack(topic, partition))
    return owned


class Paths:
    """Hands partitions on along paths of members, from those with most to one that has two less or fewer.

    Where no such path leads on from the members with most, neither they nor whoever they reach can be better off:
    they are settled, and the search goes on with the rest.
    """

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._unsettled = dict.fromkeys(range(len(draft.members)))
        self._owned: list[dict[UUID, list[int]]] = [{} for _ in draft.members]
        for topic in draft.topics.values():
            for owner, partitions in partitions_by_owner(draft, topic).items():
                self._owned[owner][topic.topic_id] = partitions

    def balance(self) -> None:
        loads = self._draft.loads
        while self._unsettled:
            most = max(loads[number] for number in self._unsettled)
            if most - min(loads[number] for number in self._unsettled) < 2:
                return
            self._search([number for number in self._unsettled if loads[number] == most], most)

    def _search(self, sources: list[int], most: int) -> None:
        """Breadth first, as the shortest path moves least."""
        reached: dict[int, tuple[int, UUID] | None] = dict.fromkeys(sources)
        seen_topics: set[UUID] = set()
        queue = deque(sources)
        while queue:
            giver = queue.popleft()
            for topic_id in self._owned[giver]:
                if topic_id in seen_topics:
                    continue
                seen_topics.add(topic_id)
                for taker in self._draft.subscribers[topic_id]:
                    if taker in reached or taker not in self._unsettled:
                        continue
                    reached[taker] = (giver, topic_id)
                    if self._draft.loads[taker] < most - 1:
                        self._hand_on(reached, taker)
                        return
                    queue.append(taker)
        for number in reached:
            del self._unsettled[number]

    def _hand_on(self, reached: dict[int, tuple[int, UUID] | None], taker: int) -> None:
        step = reached[taker]
        while step is not None:
            giver, topic_id = step
            partitions = self._owned[giver][topic_id]
            partition = partitions.pop()
            if not partitions:
                del self._owned[giver][topic_id]
            self._draft.give(topic_id, partition, taker)
            self._owned[taker].setdefault(topic_id, []).append(partition)
            taker, step = giver, reached[giver]
