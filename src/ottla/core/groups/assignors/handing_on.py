"""Handing partitions on from member to member: a gives one to b, who gives another one to c, and so on.

Who stands in between has as many as before. That reaches members who share no topic with the first one.
"""

from collections import deque
from collections.abc import Callable, Container, Iterable
from uuid import UUID

from ottla.core.groups.assignors.draft import Draft
from ottla.core.groups.topics import TopicInfo

# Who was reached: from which member and with which topic; None where the way begins.
Ways = dict[int, tuple[int, UUID] | None]


def partitions_by_owner(draft: Draft, topic: TopicInfo) -> dict[int, list[int]]:
    """The last in each list is the first to go: what is new with the member, then what has no replica in its rack."""
    previous_owners = draft.previous_owners[topic.topic_id]
    ranked = sorted(
        (owner != previous_owners[partition], not draft.is_in_rack(topic, partition), partition, owner)
        for partition, owner in enumerate(draft.owners[topic.topic_id])
    )
    owned: dict[int, list[int]] = {}
    for _, _, partition, owner in ranked:
        owned.setdefault(owner, []).append(partition)
    return owned


class HandingOn:
    """Finds the shortest ways to hand on, as they move least. `only_new`: what a member had before stays with it."""

    def __init__(self, draft: Draft, *, only_new: bool) -> None:
        self._draft = draft
        self._only_new = only_new
        self._giveable: list[dict[UUID, list[int]]] = [{} for _ in draft.members]
        for topic in draft.topics.values():
            for owner, partitions in partitions_by_owner(draft, topic).items():
                for partition in partitions:
                    self._receive(owner, topic.topic_id, partition)

    def search(
        self,
        givers: Iterable[int],
        is_wanted: Callable[[int], bool],
        among: Container[int] | None = None,
    ) -> tuple[int | None, Ways]:
        """The member nearest to the givers that is wanted, if any, and who was reached."""
        reached: Ways = dict.fromkeys(givers)
        for giver in reached:
            if is_wanted(giver):
                return giver, reached
        seen_topics: set[UUID] = set()
        queue = deque(reached)
        while queue:
            giver = queue.popleft()
            for topic_id in self._giveable[giver]:
                if topic_id in seen_topics:
                    continue
                seen_topics.add(topic_id)
                for taker in self._draft.subscribers[topic_id]:
                    if taker not in reached and (among is None or taker in among):
                        reached[taker] = (giver, topic_id)
                        if is_wanted(taker):
                            return taker, reached
                        queue.append(taker)
        return None, reached

    def hand_on(self, taker: int, reached: Ways) -> None:
        """Along the way that `search` found to `taker`."""
        step = reached[taker]
        while step is not None:
            giver, topic_id = step
            partition = self._giveable[giver][topic_id][-1]
            self.give(giver, topic_id, partition, taker)
            taker, step = giver, reached[giver]

    def give(self, giver: int, topic_id: UUID, partition: int, taker: int) -> None:
        partitions = self._giveable[giver][topic_id]
        partitions.remove(partition)
        if not partitions:
            del self._giveable[giver][topic_id]
        self._draft.give(topic_id, partition, taker)
        self._receive(taker, topic_id, partition)

    def _receive(self, taker: int, topic_id: UUID, partition: int) -> None:
        if not self._only_new or self._draft.previous_owners[topic_id][partition] != taker:
            self._giveable[taker].setdefault(topic_id, []).append(partition)
