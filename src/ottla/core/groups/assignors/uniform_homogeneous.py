"""`uniform` for identical subscriptions: the loads differ by at most one, with the fewest moves.

With P partitions and n members, each member gets P // n partitions and P % n of them one more. A member keeps its
partitions up to that number. Members that have more than P // n already are the first to get the extra one, so that
only moves that balance requires are made.
"""

from uuid import UUID

from ottla.core.groups.assignors.draft import Draft, assign_free_partitions, is_in_rack


def balance(draft: Draft) -> None:
    if not draft.members:
        return
    _take_surplus(draft)
    assign_free_partitions(draft, draft.topics.values())


def _take_surplus(draft: Draft) -> None:
    quota, extras = divmod(sum(topic.num_partitions for topic in draft.topics.values()), len(draft.members))
    for number, load in enumerate(draft.loads):
        if load <= quota:
            continue
        kept = quota
        if extras > 0:
            kept, extras = quota + 1, extras - 1
        if load > kept:
            for topic_id, partition in _partitions_by_priority(draft, number)[kept:]:
                draft.take(topic_id, partition)


def _partitions_by_priority(draft: Draft, number: int) -> list[tuple[UUID, int]]:
    """The member's partitions, the most important to keep first: those with a replica in its rack; then the first of
    each topic, the second of each topic, and so on. So a member gives up partitions of the topics that it has most of,
    and a new member does not get all its partitions from one topic.
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
