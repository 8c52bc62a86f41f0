"""Moves of partitions along a path of members: the first gives one to the second, which gives another to the third...

Members in the middle of the path keep their number of partitions. This balances members that share no topic.
"""

from collections import deque
from collections.abc import Callable, Container, Iterable
from uuid import UUID

from ottla.core.groups.assignors.draft import Draft
from ottla.core.groups.state import TopicInfo

# For each member that was reached: the previous member on the path and the topic; None at the start of a path.
Paths = dict[int, tuple[int, UUID] | None]


def partitions_by_owner(draft: Draft, topic: TopicInfo) -> dict[int, list[int]]:
    """Each owner's partitions in the order in which it should keep them: old before new, in its rack before others."""
    previous_owners = draft.previous_owners[topic.topic_id]
    ranked = sorted(
        (owner != previous_owners[partition], not draft.is_in_rack(topic, partition), partition, owner)
        for partition, owner in enumerate(draft.owners[topic.topic_id])
    )
    owned: dict[int, list[int]] = {}
    for _, _, partition, owner in ranked:
        owned.setdefault(owner, []).append(partition)
    return owned


class Handover:
    """Finds shortest paths, which move the fewest partitions. `only_new`: moves only partitions that are new to their
    owner.
    """

    def __init__(self, draft: Draft, *, only_new: bool) -> None:
        self._draft = draft
        self._only_new = only_new
        self._transferable: list[dict[UUID, list[int]]] = [{} for _ in draft.members]
        for topic in draft.topics.values():
            for owner, partitions in partitions_by_owner(draft, topic).items():
                for partition in partitions:
                    self._receive(owner, topic.topic_id, partition)

    def search(
        self,
        givers: Iterable[int],
        is_wanted: Callable[[int], bool],
        among: Container[int] | None = None,
    ) -> tuple[int | None, Paths]:
        """The wanted member that is nearest to the givers, if any, and the paths to all members that were reached."""
        reached: Paths = dict.fromkeys(givers)
        for giver in reached:
            if is_wanted(giver):
                return giver, reached
        seen_topics: set[UUID] = set()
        queue = deque(reached)
        while queue:
            giver = queue.popleft()
            for topic_id in self._transferable[giver]:
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

    def move_along(self, taker: int, reached: Paths) -> None:
        """Moves one partition per step of the path that `search` found to `taker`."""
        step = reached[taker]
        while step is not None:
            giver, topic_id = step
            partition = self._transferable[giver][topic_id][-1]
            self.give(giver, topic_id, partition, taker)
            taker, step = giver, reached[giver]

    def give(self, giver: int, topic_id: UUID, partition: int, taker: int) -> None:
        partitions = self._transferable[giver][topic_id]
        partitions.remove(partition)
        if not partitions:
            del self._transferable[giver][topic_id]
        self._draft.give(topic_id, partition, taker)
        self._receive(taker, topic_id, partition)

    def _receive(self, taker: int, topic_id: UUID, partition: int) -> None:
        if not self._only_new or self._draft.previous_owners[topic_id][partition] != taker:
            self._transferable[taker].setdefault(topic_id, []).append(partition)
