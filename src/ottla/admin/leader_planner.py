"""Plans which replica of each partition is the preferred leader, so that brokers lead the same number. Pure.

Only the order of the replicas changes: nothing is copied.
"""

from collections import Counter
from collections.abc import Collection, Mapping

from ottla.model.ids import TopicPartition

Replicas = tuple[int, ...]


def balance_leaders(
    partitions: Mapping[TopicPartition, Replicas], movable: Collection[TopicPartition]
) -> dict[TopicPartition, Replicas]:
    """The new replicas of those `movable` partitions that get another first replica.

    Counts are within one of each other, if the replicas allow it, and as few partitions change as that needs.
    """
    order = {partition: replicas for partition, replicas in partitions.items() if replicas}
    leads = Counter({broker: 0 for replicas in order.values() for broker in replicas})
    leads.update(replicas[0] for replicas in order.values())
    led_by: dict[int, dict[TopicPartition, None]] = {broker: {} for broker in leads}
    for partition in sorted(set(movable) & order.keys()):
        led_by[order[partition][0]][partition] = None
    changed: dict[TopicPartition, Replicas] = {}
    while (path := _path(leads, led_by, order)) is not None:
        for partition, target in path:
            source = order[partition][0]
            rest = tuple(replica for replica in order[partition] if replica != target)
            order[partition] = changed[partition] = (target, *rest)
            del led_by[source][partition]
            led_by[target][partition] = None
            leads[source] -= 1
            leads[target] += 1
    return changed


def _path(
    leads: Mapping[int, int],
    led_by: Mapping[int, Mapping[TopicPartition, None]],
    order: Mapping[TopicPartition, Replicas],
) -> list[tuple[TopicPartition, int]] | None:
    """The shortest way from a broker with the most leaders to one with at least two fewer."""
    for source in sorted(leads, key=lambda broker: (-leads[broker], broker)):
        paths: dict[int, list[tuple[TopicPartition, int]]] = {source: []}
        queue = [source]
        for broker in queue:
            for partition in led_by[broker]:
                for target in order[partition][1:]:
                    if target in paths:
                        continue
                    paths[target] = [*paths[broker], (partition, target)]
                    if leads[target] + 2 <= leads[source]:
                        return paths[target]
                    queue.append(target)
    return None
