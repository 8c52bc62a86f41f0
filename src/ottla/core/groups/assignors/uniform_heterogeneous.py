"""`uniform` where subscriptions differ: as balanced as they allow.

Who owns what is a matching of partitions with subscribers, and it is balanced best when no partition can be handed on
from member to member, one hop or several, so that the first had two more than the last one (Harvey et al.,
"Semi-matchings for bipartite graphs and load balancing"). Single hops are found topic by topic, which does nearly
all; a search for several hops does the rest.
"""

from heapq import heapify, heappop, heapreplace
from uuid import UUID

from ottla.core.groups.assignors.draft import NOBODY, Draft
from ottla.core.groups.assignors.filling import fill
from ottla.core.groups.assignors.handing_on import HandingOn, partitions_by_owner
from ottla.core.groups.topics import TopicInfo


def balance(draft: Draft) -> None:
    topics = narrowest_first(draft)
    fill(draft, topics)
    for topic in topics:
        balance_topic(draft, topic)
    balance_over_several_hops(draft)
    give_back(draft)


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


def balance_over_several_hops(draft: Draft) -> None:
    """From those who have most. Where they reach nobody with two less, neither they nor whoever they reach can be
    better off: they are settled, and the others go on among themselves.
    """
    loads = draft.loads
    handing_on = HandingOn(draft, only_new=False)
    unsettled = dict.fromkeys(range(len(draft.members)))
    while unsettled:
        most = max(loads[number] for number in unsettled)
        if most - min(loads[number] for number in unsettled) < 2:
            return
        givers = [number for number in unsettled if loads[number] == most]
        has_two_less = {number for number in unsettled if loads[number] <= most - 2}
        taker, reached = handing_on.search(givers, has_two_less.__contains__, among=unsettled)
        if taker is not None:
            handing_on.hand_on(taker, reached)
        else:
            for number in reached:
                del unsettled[number]


def give_back(draft: Draft) -> None:
    """Returns what moved though it need not have."""
    handing_on = HandingOn(draft, only_new=True)
    for topic_id, owners in draft.owners.items():
        for partition, previous_owner in enumerate(draft.previous_owners[topic_id]):
            if previous_owner not in (NOBODY, owners[partition]):
                give_back_one(draft, handing_on, topic_id, partition)


def give_back_one(draft: Draft, handing_on: HandingOn, topic_id: UUID, partition: int) -> None:
    """Balance stays where the previous owner has one less than the owner now, or hands on something new, in exchange,
    to one who has: or to the owner now.
    """
    loads = draft.loads
    owner = draft.owners[topic_id][partition]
    previous_owner = draft.previous_owners[topic_id][partition]
    taker, reached = handing_on.search(
        [previous_owner], lambda number: number == owner or loads[number] == loads[owner] - 1
    )
    if taker is not None:
        handing_on.give(owner, topic_id, partition, previous_owner)
        handing_on.hand_on(taker, reached)
