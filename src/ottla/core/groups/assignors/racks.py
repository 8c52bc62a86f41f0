"""Moves partitions that have to move anyway to members in the rack of a replica (as KIP-881 does in the client).

It exchanges such partitions one for one, between members that subscribe to both topics, so that balance and stickiness
do not change.
"""

from uuid import UUID

from ottla.core.groups.assignors.draft import Draft

Racks = frozenset[str]
# The rack of a partition's owner, and the racks of its replicas.
Place = tuple[str | None, Racks]


def improve_rack_locality(draft: Draft) -> None:
    if not any(member.rack_id for member in draft.members) or not any(
        topic.racks for topic in draft.topics.values()
    ):
        return
    by_subscribers: dict[tuple[int, ...], list[tuple[UUID, int, Racks]]] = {}
    for topic in draft.topics.values():
        previous_owners = draft.previous_owners[topic.topic_id]
        moved = [
            (topic.topic_id, partition, topic.racks[partition] if topic.racks else frozenset())
            for partition, owner in enumerate(draft.owners[topic.topic_id])
            if owner != previous_owners[partition]
        ]
        if moved:
            subscribers = tuple(draft.subscribers[topic.topic_id])
            by_subscribers.setdefault(subscribers, []).extend(moved)
    for moved in by_subscribers.values():
        RackExchange(draft, moved).run()


class RackExchange:
    """Exchanges partitions among topics with the same subscribers."""

    def __init__(self, draft: Draft, moved: list[tuple[UUID, int, Racks]]) -> None:
        self._draft = draft
        self._places: dict[Place, list[tuple[UUID, int]]] = {}
        for topic_id, partition, racks in moved:
            rack = draft.members[draft.owners[topic_id][partition]].rack_id
            self._places.setdefault((rack, racks), []).append((topic_id, partition))

    def run(self) -> None:
        """Repeats until there is no gain, because an exchange may make another one possible."""
        has_gained = True
        while has_gained:
            has_gained = False
            for place in [place for place in self._places if place[0] not in place[1]]:
                while self._places[place] and (other := self._best_exchange(place)) is not None:
                    self._exchange(place, other)
                    has_gained = True

    def _best_exchange(self, far: Place) -> Place | None:
        """The place to exchange with: in a rack of the partition's replicas, and with the largest gain for both
        together.
        """
        rack, racks = far
        best, best_gain = None, 0
        for place, partitions in self._places.items():
            other_rack, other_racks = place
            if partitions and other_rack in racks:
                gain = 1 + (rack in other_racks) - (other_rack in other_racks)
                if gain > best_gain:
                    best, best_gain = place, gain
        return best

    def _exchange(self, far: Place, other: Place) -> None:
        topic_id, partition = self._places[far].pop()
        other_topic_id, other_partition = self._places[other].pop()
        owner = self._draft.owners[topic_id][partition]
        other_owner = self._draft.owners[other_topic_id][other_partition]
        self._draft.give(topic_id, partition, other_owner)
        self._draft.give(other_topic_id, other_partition, owner)
        self._places.setdefault((other[0], far[1]), []).append((topic_id, partition))
        self._places.setdefault((far[0], other[1]), []).append((other_topic_id, other_partition))
