"""Decides changes of dynamic configs of topics, brokers (one, or the default for all), client metrics and groups."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TypeVar

from ottla.core.controller.commands import (
    NO_ERROR,
    AlterConfigs,
    ApiError,
    ConfigChange,
    ConfigOp,
    ControllerDecision,
    IncrementalAlterConfigs,
)
from ottla.core.controller.image import ELR_VERSION, ConfigResource, MetadataImage
from ottla.model.config import definition_of, is_list
from ottla.model.config.cordoned import CORDONED_LOG_DIRS
from ottla.model.config.definition import ResourceType
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.metadata_records.records import ConfigRecord, MetadataRecord, PartitionChangeRecord

MIN_INSYNC_REPLICAS = "min.insync.replicas"
UNCLEAN_LEADER_ELECTION = "unclean.leader.election.enable"
_VALUE_BYTES_MAX = 32767
# No resource has as many configs. One resource is decided in one turn of the event loop.
_CHANGES_MAX = 1000

# (resource, all its configs after the change, the names that change) -> the error message, or None.
ConfigValidator = Callable[[ConfigResource, Mapping[str, str], Collection[str]], str | None]
ConfigResults = tuple[tuple[ConfigResource, ApiError], ...]
Changes = TypeVar("Changes")


def decide_incremental_alter_configs(
    image: MetadataImage, command: IncrementalAlterConfigs, validate: ConfigValidator
) -> ControllerDecision[ConfigResults]:
    def alter(resource: ConfigResource, changes: tuple[ConfigChange, ...]) -> list[ConfigRecord]:
        _check_count(changes)
        _check_no_duplicates(change.name for change in changes)
        missing = [change.name for change in changes if change.op != ConfigOp.DELETE and change.value is None]
        if missing:
            raise KafkaError(ErrorCode.invalid_request, f"Null value not supported for : {','.join(missing)}")
        current = image.configs.get(resource, {})
        new = {change.name: _changed_value(resource, change, current.get(change.name)) for change in changes}
        return alter_records(image, resource, new, validate)

    return _decide(image, command.resources, alter, command.validate_only)


def decide_alter_configs(
    image: MetadataImage, command: AlterConfigs, validate: ConfigValidator
) -> ControllerDecision[ConfigResults]:
    def alter(resource: ConfigResource, configs: tuple[tuple[str, str | None], ...]) -> list[ConfigRecord]:
        _check_count(configs)
        _check_no_duplicates(name for name, _ in configs)
        missing = [name for name, value in configs if value is None]
        if missing:
            raise KafkaError(ErrorCode.invalid_request, f"Null value not supported for : {','.join(missing)}")
        deleted = dict.fromkeys(image.configs.get(resource, {}))
        return alter_records(image, resource, {**deleted, **dict(configs)}, validate)

    return _decide(image, command.resources, alter, command.validate_only)


def alter_records(
    image: MetadataImage,
    resource: ConfigResource,
    new: Mapping[str, str | None],
    validate: ConfigValidator,
    *,
    is_new_topic: bool = False,
) -> list[ConfigRecord]:
    """The records that set these values (None deletes). Raises KafkaError if they are not valid for the resource."""
    current = image.configs.get(resource, {})
    result = {name: value for name, value in {**current, **new}.items() if value is not None}
    _check_name(resource)
    if any(len(value.encode()) > _VALUE_BYTES_MAX for value in result.values()):
        raise KafkaError(
            ErrorCode.invalid_config,
            "The configuration value cannot be added because it exceeds the maximum value size of "
            f"{_VALUE_BYTES_MAX} bytes.",
        )
    reason = validate(resource, result, new.keys())
    if reason is not None:
        # In Kafka the broker validates its own configs, before the controller, and returns INVALID_REQUEST.
        code = ErrorCode.invalid_request if resource.type == ResourceType.BROKER else ErrorCode.invalid_config
        raise KafkaError(code, reason)
    if resource.type == ResourceType.BROKER:
        _check_min_isr(image, resource, new)
        if CORDONED_LOG_DIRS in new and not image.has_cordoned_directories:
            raise KafkaError(
                ErrorCode.invalid_config,
                f"{CORDONED_LOG_DIRS} needs metadata.version 4.3-IV0. Raise it before",
            )
    if not is_new_topic:
        _check_exists(image, resource)
    return [
        ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=name, value=value)
        for name, value in new.items()
        # KAFKA-14136: for a broker an unchanged value is a signal to reload the file that it names (a key store).
        if value != current.get(name) or resource.type == ResourceType.BROKER
    ]


def _decide(
    image: MetadataImage,
    resources: tuple[tuple[ConfigResource, Changes], ...],
    alter: Callable[[ConfigResource, Changes], list[ConfigRecord]],
    validate_only: bool,
) -> ControllerDecision[ConfigResults]:
    records: list[ConfigRecord] = []
    results: dict[ConfigResource, ApiError] = {}
    repeated = _duplicates(resource for resource, _ in resources)
    for resource, changes in resources:
        if resource in repeated:
            results[resource] = ApiError(ErrorCode.invalid_request, "Each resource must appear at most once.")
            continue
        try:
            records += alter(resource, changes)
            results[resource] = NO_ERROR
        except KafkaError as error:
            results[resource] = ApiError(error.code, error.message)
    written: list[MetadataRecord] = []
    if not validate_only:
        written = [*records, *clear_elr_records(image, records)]
    return ControllerDecision(tuple(written), tuple(results.items()))


def clear_elr_records(
    image: MetadataImage, records: Iterable[ConfigRecord]
) -> Iterator[PartitionChangeRecord]:
    """KIP-966: with a lower min.insync.replicas the ISR may commit records that the eligible replicas do not have.

    A partition without a leader commits nothing. Its list is kept, as it could have no other leader. A cluster that had
    ELR may have lists too, until the partitions change.
    """
    altered = [record for record in records if record.name == MIN_INSYNC_REPLICAS]
    if not altered:
        return
    names = {record.resource_name for record in altered if record.resource_type == ResourceType.TOPIC}
    is_default = any(record.resource_type == ResourceType.BROKER for record in altered)
    topics = image.topics
    for topic in topics.values() if is_default else [topics[name] for name in sorted(names & topics.keys())]:
        for index, partition in topic.partitions.items():
            if partition.has_leader and partition.eligible_leader_replicas:
                yield PartitionChangeRecord(
                    partition_id=index, topic_id=topic.topic_id, eligible_leader_replicas=()
                )


def _changed_value(resource: ConfigResource, change: ConfigChange, current: str | None) -> str | None:
    if change.op == ConfigOp.SET:
        return change.value
    if change.op == ConfigOp.DELETE:
        return None
    if change.op not in (ConfigOp.APPEND, ConfigOp.SUBTRACT):
        raise KafkaError(ErrorCode.invalid_request, f"Unknown operations type {change.op}")
    op = ConfigOp(change.op)
    if not is_list(resource.type, change.name):
        raise KafkaError(
            ErrorCode.invalid_config,
            f"Can't {op.name} to key {change.name} because its type is not LIST.",
        )
    if current is None:
        definition = definition_of(resource.type, change.name)
        current = None if definition is None else definition.default_text()
    parts = _parts(current)
    given = _parts(change.value)
    if op is ConfigOp.APPEND:
        return ",".join(dict.fromkeys(parts + given))
    return ",".join(part for part in parts if part not in given)


def _parts(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def _check_name(resource: ConfigResource) -> None:
    if resource.type == ResourceType.BROKER:
        if resource.name and not resource.name.isdecimal():
            raise KafkaError(
                ErrorCode.invalid_request,
                f"Unable to parse broker name '{resource.name}' as a base 10 number.",
            )
        return
    kinds = {
        ResourceType.TOPIC: "topic",
        ResourceType.GROUP: "group",
        ResourceType.CLIENT_METRICS: "client metrics",
    }
    if resource.type not in kinds:
        raise KafkaError(ErrorCode.invalid_request, f"Unknown resource type {resource.type}")
    if not resource.name:
        kind = kinds[ResourceType(resource.type)]
        raise KafkaError(ErrorCode.invalid_request, f"Default {kind} resources are not allowed.")


def _check_min_isr(image: MetadataImage, resource: ConfigResource, new: Mapping[str, str | None]) -> None:
    """KIP-966: a leader acknowledges records by min.insync.replicas, and the controller finds out by it which replicas
    have all acknowledged records. If one broker had a lower value, the controller would elect a replica without them.

    The level counts, also while metadata.version is too low for the feature: nothing checks the values when that rises.
    """
    if MIN_INSYNC_REPLICAS not in new or image.features.get(ELR_VERSION, 0) < 1:
        return
    if resource.name:
        raise KafkaError(
            ErrorCode.invalid_config,
            f"Broker-level {MIN_INSYNC_REPLICAS} cannot be altered while ELR is enabled.",
        )
    if new[MIN_INSYNC_REPLICAS] is None:  # each node would use the value of its configuration file
        raise KafkaError(
            ErrorCode.invalid_config,
            f"Cluster-level {MIN_INSYNC_REPLICAS} cannot be removed while ELR is enabled.",
        )


def _check_exists(image: MetadataImage, resource: ConfigResource) -> None:
    """Client metrics and groups need not exist before they have configs."""
    if resource.type == ResourceType.TOPIC and resource.name not in image.topics:
        raise KafkaError(ErrorCode.unknown_topic_or_partition, f"The topic '{resource.name}' does not exist.")
    if resource.type == ResourceType.BROKER and resource.name:
        node_id = int(resource.name)
        if node_id not in image.brokers and node_id not in image.controllers:
            raise KafkaError(ErrorCode.broker_id_not_registered, f"No node with id {node_id} found.")


def _check_count(changes: tuple[object, ...]) -> None:
    if len(changes) > _CHANGES_MAX:
        raise KafkaError(
            ErrorCode.invalid_config,
            f"{len(changes)} configs of one resource are more than the {_CHANGES_MAX} that a request may change",
        )


def _check_no_duplicates(names: Iterable[str]) -> None:
    if _duplicates(names):
        raise KafkaError(ErrorCode.invalid_request, "Error due to duplicate config keys")


Item = TypeVar("Item")


def _duplicates(items: Iterable[Item]) -> set[Item]:
    seen: set[Item] = set()
    again: set[Item] = set()
    for item in items:
        (again if item in seen else seen).add(item)
    return again
