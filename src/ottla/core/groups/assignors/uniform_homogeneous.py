"""`uniform` where all members are subscribed to the same topics: loads differ by one at most, with the fewest moves.

Of P partitions and n members everybody gets P // n and P % n of them one more. A member keeps what it has up to that;
who has more than P // n already comes first for the one more, so nothing moves that balance does not force to.
"""

from uuid import UUID

from ottla.core.groups.assignors.draft import Draft, is_in_rack
from ottla.core.groups.assignors.filling import fill


def balance(draft: Draft) -> None:
    if not draft.members:
        return
    take_surplus(draft)
    fill(draft, draft.topics.values())


def take_surplus(draft: Draft) -> None:
    quota, extras = divmod(sum(topic.num_partitions for topic in draft.topics.values()), len(draft.members))
    for number, load in enumerate(draft.loads):
        if load <= quota:
            continue
        kept = quota
        if extras > 0:
            kept, extras = quota + 1, extras - 1
        if load > kept:
            for topic_id, partition in in_order_to_keep(draft, number)[kept:]:
                draft.take(topic_id, partition)


def in_order_to_keep(draft: Draft, number: int) -> list[tuple[UUID, int]]:
    """First what has a replica in the member's rack; then one partition of each topic, then a second one, and so on: a
    member gives from the topics that it has most of, or they would all give the same topic to the one who comes.
    """
    member = draft.members[number]
    ranked = []
    for topic_id, partitions in member.assigned.items():
        topic = draft.topics.get(topic_id)
        if topic is None:
            continue
        owners = draft.owners[topic_id]
        nth_by_rack = [0, 0]
        for partition in sorted(partitions):
            if partition < len(owners) and owners[partition] == number:
                is_far = not is_in_rack(member, topic, partition)
                ranked.append((is_far, nth_by_rack[is_far], topic.name, partition, topic_id))
                nth_by_rack[is_far] += 1
    return [(topic_id, partition) for _, _, _, partition, topic_id in sorted(ranked)]
