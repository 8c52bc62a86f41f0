"""Places the replicas of new partitions: round-robin over racks, and over the brokers of each rack.

Each partition starts one broker later than the one before, so that leaders and followers spread evenly and the
replicas of a partition are on as many racks as possible. Fenced brokers are used only if there are too few others, and
never as leaders; brokers that are shutting down are not used. Load and free space are not considered.
"""

from collections.abc import Iterable
from typing import NamedTuple

from ottla.core.controller.image import BrokerImage
from ottla.model.errors import ErrorCode, KafkaError


class _Rack(NamedTuple):
    active: list[int]
    fenced: list[int]


def place_replicas(
    brokers: Iterable[BrokerImage], partitions: int, replication_factor: int, start: int
) -> list[tuple[int, ...]]:
    """The replicas of each partition, the preferred leader first. Raises KafkaError(INVALID_REPLICATION_FACTOR).

    `start`, a random number from a large range, determines the rack and broker of the first partition.
    """
    known = sorted(broker for broker in brokers if broker.is_active or broker.fenced)
    usable = [broker for broker in known if broker.is_active]
    if not usable:
        raise _cannot_replicate(
            replication_factor, "All brokers are currently fenced or in controlled shutdown."
        )
    if replication_factor > len(known):
        raise _cannot_replicate(
            replication_factor,
            f"The target replication factor of {replication_factor} cannot be reached because only {len(known)} "
            "broker(s) are registered.",
        )
    racks = _racks(known)
    leading = sum(bool(rack.active) for rack in racks)
    return [
        _place(
            racks,
            replication_factor,
            (start + index) % leading,
            (start + index) // leading,
            index // len(usable),
        )
        for index in range(partitions)
    ]


def _racks(brokers: list[BrokerImage]) -> list[_Rack]:
    by_name: dict[str, _Rack] = {}
    for broker in brokers:
        rack = by_name.setdefault(broker.rack or "", _Rack([], []))
        (rack.active if broker.is_active else rack.fenced).append(broker.broker_id)
    # Racks with an active broker come first, as only they can have the leader.
    return [by_name[name] for name in sorted(by_name, key=lambda name: (not by_name[name].active, name))]


def _place(
    racks: list[_Rack], replication_factor: int, first_rack: int, turn: int, shift: int
) -> tuple[int, ...]:
    queues = [
        _order(rack.active, turn, shift) + _order(rack.fenced, turn, shift)
        for rack in racks[first_rack:] + racks[:first_rack]
    ]
    replicas: list[int] = []
    while len(replicas) < replication_factor:
        for queue in queues:
            if queue and len(replicas) < replication_factor:
                replicas.append(queue.pop(0))
    return tuple(replicas)


def _order(brokers: list[int], turn: int, shift: int) -> list[int]:
    """The order in which a partition uses a rack's brokers: `turn` selects the first.

    `shift` grows with every round over all brokers and rotates those after the first, so that all others share the
    partitions of a broker that fails.
    """
    if len(brokers) < 2:
        return brokers.copy()
    first = turn % len(brokers)
    behind = brokers[first + 1 :] + brokers[:first]
    shift %= len(behind)
    return [brokers[first], *behind[shift:], *behind[:shift]]


def _cannot_replicate(replication_factor: int, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.invalid_replication_factor,
        f"Unable to replicate the partition {replication_factor} time(s): {reason}",
    )
