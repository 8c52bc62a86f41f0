"""`uniform` for different subscriptions: as balanced as the subscriptions allow.

The assignment is a semi-matching of partitions with subscribers. It is optimal when no path of moves, of one hop or
several, leads from a member to one that has at least two partitions less (Harvey et al., "Semi-matchings for bipartite
graphs and load balancing"). Single hops are made topic by topic, which is nearly enough; a search for longer paths does
the rest.
"""

from heapq import heapify, heappop, heapreplace
from uuid import UUID

from ottla.core.groups.assignors.draft import NOBODY, Draft, assign_free_partitions
from ottla.core.groups.assignors.handover import Handover, partitions_by_owner
from ottla.core.groups.state import TopicInfo


def balance(draft: Draft) -> None:
    topics = _narrowest_first(draft)
    assign_free_partitions(draft, topics)
    for topic in topics:
        _balance_topic(draft, topic)
    _balance_over_several_hops(draft)
    _restore_previous_owners(draft)


def _narrowest_first(draft: Draft) -> list[TopicInfo]:
    """Topics with the most partitions per subscriber first: the later ones have more choice and even out the rest."""

    def width(topic: TopicInfo) -> tuple[float, int]:
        subscribers = len(draft.subscribers[topic.topic_id])
        return -topic.num_partitions / subscribers, subscribers

    return sorted(draft.topics.values(), key=width)


def _balance_topic(draft: Draft, topic: TopicInfo) -> None:
    """Moves partitions of the topic from the member with most to the one with least, while they differ by 2 or more."""
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


def _balance_over_several_hops(draft: Draft) -> None:
    """Searches from the members with most. If they reach no member with two less, they and all members that they reach
    are settled, and the search continues among the others.
    """
    loads = draft.loads
    handover = Handover(draft, only_new=False)
    unsettled = dict.fromkeys(range(len(draft.members)))
    while unsettled:
        most = max(loads[number] for number in unsettled)
        if most - min(loads[number] for number in unsettled) < 2:
            return
        givers = [number for number in unsettled if loads[number] == most]
        has_two_less = {number for number in unsettled if loads[number] <= most - 2}
        taker, reached = handover.search(givers, has_two_less.__contains__, among=unsettled)
        if taker is not None:
            handover.move_along(taker, reached)
        else:
            for number in reached:
                del unsettled[number]


def _restore_previous_owners(draft: Draft) -> None:
    """Gives partitions back to their previous owners where that keeps the balance."""
    handover = Handover(draft, only_new=True)
    for topic_id, owners in draft.owners.items():
        for partition, previous_owner in enumerate(draft.previous_owners[topic_id]):
            if previous_owner not in (NOBODY, owners[partition]):
                _restore_previous_owner(draft, handover, topic_id, partition)


def _restore_previous_owner(draft: Draft, handover: Handover, topic_id: UUID, partition: int) -> None:
    """The balance is kept if the previous owner has one partition less than the owner, or can move a new partition
    along a path to the owner or to a member that has one less.
    """
    loads = draft.loads
    owner = draft.owners[topic_id][partition]
    previous_owner = draft.previous_owners[topic_id][partition]
    taker, reached = handover.search(
        [previous_owner], lambda number: number == owner or loads[number] == loads[owner] - 1
    )
    if taker is not None:
        handover.give(owner, topic_id, partition, previous_owner)
        handover.move_along(taker, reached)
