"""Plans for reassignments in the JSON format of Kafka's tool, and the checks before one is carried out. Pure."""

import json
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from ottla.model.ids import TopicPartition

_ANY_DIRECTORY = "any"

Plan = dict[TopicPartition, tuple[int, ...]]


class PlanError(ValueError):
    """A plan that cannot be read."""


class PartitionState(NamedTuple):
    """`replicas` are those of the metadata: while the partition moves, those before and after."""

    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    leader: int | None
    size_bytes: int


class OngoingMove(NamedTuple):
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        return tuple(replica for replica in self.replicas if replica not in self.removing)


class ClusterState(NamedTuple):
    """`racks` are those of the active brokers, `hosts` the names that they advertise; `inactive` brokers are fenced, or
    have replicas but are unknown.
    """

    racks: Mapping[int, str | None]
    inactive: frozenset[int]
    partitions: Mapping[TopicPartition, PartitionState]
    ongoing: Mapping[TopicPartition, OngoingMove]
    hosts: Mapping[int, str] = MappingProxyType({})

    @property
    def failure_domains(self) -> Mapping[int, str | None]:
        """What fails together. Without racks it is the host: several brokers may run on one (`ottla serve --workers`).

        If all have the same host, as on a development machine, or each its own, hosts tell nothing.
        """
        hosts = {self.hosts.get(broker) for broker in self.racks}
        if all(self.racks.values()) or None in hosts or not 1 < len(hosts) < len(self.racks):
            return self.racks
        return {broker: self.hosts[broker] for broker in self.racks}


def parse_plan(text: str) -> Plan:
    """Raises PlanError that says what is wrong."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise PlanError(f"it is not JSON: {error}") from None
    entries = document.get("partitions") if isinstance(document, dict) else None
    if not isinstance(entries, list) or document.get("version", 1) != 1:
        raise PlanError(
            'expected {"version": 1, "partitions": [...]}, as `ottla reassign generate` prints it'
        )
    if not entries:
        raise PlanError("it has no partitions")
    plan: Plan = {}
    for entry in entries:
        partition, replicas = _parse_entry(entry)
        if partition in plan:
            raise PlanError(f"{partition} is in it twice")
        plan[partition] = replicas
    return plan


def _parse_entry(entry: Any) -> tuple[TopicPartition, tuple[int, ...]]:
    fields = entry if isinstance(entry, dict) else {}
    topic, index, replicas = fields.get("topic"), fields.get("partition"), fields.get("replicas")
    if not isinstance(topic, str) or not _is_id(index) or not isinstance(replicas, list):
        raise PlanError(f"{json.dumps(entry)}: expected topic, partition and replicas")
    assert isinstance(index, int)
    partition = TopicPartition(topic, index)
    if not all(map(_is_id, replicas)):
        raise PlanError(f"{partition}: the replicas {json.dumps(replicas)} are not ids of brokers")
    directories = fields.get("log_dirs", [])
    if not isinstance(directories, list) or any(path != _ANY_DIRECTORY for path in directories):
        raise PlanError(
            f"{partition}: log_dirs names a directory. Moves between directories are not supported here: set "
            'each to "any", and use kafka-reassign-partitions for them'
        )
    return partition, tuple(replicas)


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31


def format_plan(plan: Mapping[TopicPartition, tuple[int, ...]]) -> str:
    """One line of JSON, which `parse_plan` and Kafka's tool read."""
    partitions = [
        {
            "topic": topic,
            "partition": index,
            "replicas": list(replicas),
            "log_dirs": [_ANY_DIRECTORY] * len(replicas),
        }
        for (topic, index), replicas in sorted(plan.items())
    ]
    return json.dumps({"version": 1, "partitions": partitions})


def unknown_partitions(
    partitions: Collection[TopicPartition], known: Collection[TopicPartition]
) -> list[str]:
    """An error for each partition that does not exist."""
    topics = {topic for topic, _ in known}
    return [
        f"{partition}: there is no topic {partition.topic}"
        if partition.topic not in topics
        else f"{partition}: topic {partition.topic} has no partition {partition.partition}"
        for partition in sorted(partitions)
        if partition not in known
    ]


def plan_errors(
    plan: Plan, state: ClusterState, min_insync_replicas: Mapping[str, int], *, force: bool
) -> list[str]:
    """Why the plan must not be carried out; empty if it may. `force` allows what only reduces safety."""
    errors = unknown_partitions(plan, state.partitions)
    for partition, replicas in sorted(plan.items()):
        if partition not in state.partitions:
            continue
        reasons = _replica_errors(replicas, state)
        move = state.ongoing.get(partition)
        if move is not None and move.target != replicas:
            reasons.append(
                f"it is being moved to {_ids(move.target)}. Wait for that, or cancel it with `ottla reassign cancel`"
            )
        if not force and not reasons:
            reasons += _safety_errors(replicas, state, min_insync_replicas.get(partition.topic, 1))
        errors += [f"{partition}: {reason}" for reason in reasons]
    return errors


def _replica_errors(replicas: tuple[int, ...], state: ClusterState) -> list[str]:
    if not replicas:
        return ["it has no replicas"]
    errors = []
    if len(set(replicas)) < len(replicas):
        errors.append(f"a broker is twice in its replicas {_ids(replicas)}")
    unknown = sorted(set(replicas) - set(state.racks) - state.inactive)
    if unknown:
        errors.append(
            f"there is no broker {_ids(unknown)}. The brokers are {_ids(sorted(state.racks)) or 'not known'}"
        )
    return errors


def _safety_errors(replicas: tuple[int, ...], state: ClusterState, minimum: int) -> list[str]:
    active = [replica for replica in replicas if replica in state.racks]
    if len(active) >= minimum:
        return []
    down = sorted(set(replicas) - set(active))
    because = f", as broker {_ids(down)} is down" if down else ""
    return [
        f"it would have {len(active)} active replicas{because}, fewer than min.insync.replicas={minimum}: producers "
        "with acks=all would get errors. Use more replicas, or --force"
    ]


def changes_of(plan: Plan, state: ClusterState) -> Plan:
    """The part of the plan that is not the present state. The first replica matters too: it is the preferred leader."""
    return {
        partition: replicas
        for partition, replicas in plan.items()
        if partition in state.ongoing or state.partitions[partition].replicas != replicas
    }


def added_replicas(plan: Plan, state: ClusterState) -> dict[TopicPartition, tuple[int, ...]]:
    """The brokers that have to copy each partition."""
    found = {}
    for partition, replicas in plan.items():
        move = state.ongoing.get(partition)
        before = set(state.partitions[partition].replicas) - set(move.adding if move else ())
        if added := tuple(replica for replica in replicas if replica not in before):
            found[partition] = added
    return found


def _ids(brokers: Collection[int]) -> str:
    return ", ".join(map(str, brokers))
