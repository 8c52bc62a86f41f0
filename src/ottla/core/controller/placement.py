"""Places the replicas of new partitions: round-robin over racks, and over the brokers of each rack.

Each partition starts one broker later than the one before, so that leaders and followers spread evenly and the
replicas of a partition are on as many racks as possible. Several brokers may run on one host (`ottla serve --workers`):
the replicas of a partition go to different hosts, as far as there are enough that are alive.

Fenced brokers are never leaders. As in Kafka's StripedReplicaPlacer, a rack gives a fenced broker only when it has no
other left, but a rack whose brokers are all fenced gets a replica before another rack gets a second one. Beyond that,
fenced brokers are the last, even if the live ones share a host: a live one copies the records at once, a fenced one
perhaps never.

Brokers that are shutting down, and brokers whose directories are all cordoned (KIP-1066), are not used. Load and free
space are not considered.
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
    registered = [broker for broker in brokers if broker.is_active or broker.fenced]
    known = sorted(broker for broker in registered if broker.has_uncordoned_directory)
    usable = [broker for broker in known if broker.is_active]
    if not usable:
        reason = "All brokers are currently fenced or in controlled shutdown."
        if any(broker.is_active for broker in registered):
            reason = "All brokers that are active have only cordoned log directories."
        raise _cannot_replicate(replication_factor, reason)
    if replication_factor > len(known):
        cordoned = " and have a log directory that is not cordoned" if len(known) < len(registered) else ""
        raise _cannot_replicate(
            replication_factor,
            f"The target replication factor of {replication_factor} cannot be reached because only {len(known)} "
            f"broker(s) are registered{cordoned}.",
        )
    racks = _racks(known)
    hosts = {broker.broker_id: _host(broker) for broker in known}
    leading = sum(bool(rack.active) for rack in racks)
    return [
        _place(
            racks,
            replication_factor,
            (start + index) % leading,
            (start + index) // leading,
            index // len(usable),
            hosts,
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
    racks: list[_Rack],
    replication_factor: int,
    first_rack: int,
    turn: int,
    shift: int,
    hosts: dict[int, str],
) -> tuple[int, ...]:
    """Prefers live brokers, then a host without a replica of the partition, then a rack with the fewest."""
    unused = [
        _Rack(_order(rack.active, turn, shift), _order(rack.fenced, turn, shift))
        for rack in racks[first_rack:] + racks[:first_rack]
    ]
    replicas: list[int] = []
    used_hosts: set[str] = set()
    in_rack = [0] * len(unused)
    while len(replicas) < replication_factor:
        options = []
        for position, rack in enumerate(unused):
            brokers = rack.active or rack.fenced
            if brokers:
                elsewhere = next((broker for broker in brokers if hosts[broker] not in used_hosts), None)
                broker = brokers[0] if elsewhere is None else elsewhere
                is_spare = not rack.active and in_rack[position] > 0
                options.append((is_spare, elsewhere is None, in_rack[position], position, broker))
        *_, position, broker = min(options)
        (unused[position].active or unused[position].fenced).remove(broker)
        replicas.append(broker)
        used_hosts.add(hosts[broker])
        in_rack[position] += 1
    return tuple(replicas)


def _host(broker: BrokerImage) -> str:
    """Brokers with the same advertised host are workers of one machine. All of them if nobody sets the hosts."""
    return broker.end_points[0].host.lower() if broker.end_points else f"broker {broker.broker_id}"


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
