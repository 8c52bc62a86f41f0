"""Decides the creation and deletion of topics, and the addition of partitions."""

import uuid
from collections import Counter

from ottla.core.controller.assignment import check_replicas, new_directory
from ottla.core.controller.commands import (
    NO_ERROR,
    ApiError,
    ControllerDecision,
    CreatePartitions,
    CreateTopics,
    DeletedTopic,
    DeleteTopics,
    NewPartitions,
    NewTopic,
    NewTopicResult,
    TopicToDelete,
)
from ottla.core.controller.configs import ConfigValidator, alter_records
from ottla.core.controller.image import ConfigResource, MetadataImage
from ottla.core.controller.placement import place_replicas
from ottla.core.controller.settings import ControllerSettings
from ottla.core.controller.topic_names import MetricNames, topic_name_error
from ottla.model.config.definition import ResourceType
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import METADATA_TOPIC
from ottla.protocol.metadata_records.records import (
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)

PARTITIONS_PER_REQUEST_MAX = 10_000
_DUPLICATE_NAME = ApiError(ErrorCode.invalid_request, "Duplicate topic name.")


def decide_create_topics(
    image: MetadataImage, command: CreateTopics, settings: ControllerSettings
) -> ControllerDecision[tuple[NewTopicResult, ...]]:
    counts = Counter(topic.name for topic in command.topics)
    records: list[MetadataRecord] = []
    results: dict[str, NewTopicResult] = {}
    metric_names = MetricNames(image.topics)
    for topic in command.topics:
        if counts[topic.name] > 1:
            results[topic.name] = NewTopicResult(topic.name, _DUPLICATE_NAME)
            continue
        try:
            _check_name(image, topic.name, metric_names)
            placed = _assignments(image, topic, settings, command.placement_start + len(records))
            configs = _config_records(image, topic, settings.validate_configs)
        except KafkaError as error:
            results[topic.name] = NewTopicResult(topic.name, ApiError(error.code, error.message))
            continue
        metric_names.add(topic.name)
        records.append(TopicRecord(name=topic.name, topic_id=topic.topic_id))
        # Configs come before the partitions, so that no reader sees a partition without its configs.
        records += configs
        records += _partition_records(image, topic.topic_id, placed, first=0)
        results[topic.name] = NewTopicResult(
            topic.name,
            NO_ERROR,
            topic.topic_id,
            len(placed),
            len(placed[0]),
            {record.name: record.value for record in configs if record.value is not None},
        )
        if len(records) > PARTITIONS_PER_REQUEST_MAX:  # all this is one turn of the event loop
            return ControllerDecision(
                (), tuple(NewTopicResult(name, _too_many_partitions()) for name in counts)
            )
    return ControllerDecision(() if command.validate_only else tuple(records), tuple(results.values()))


def decide_delete_topics(
    image: MetadataImage, command: DeleteTopics
) -> ControllerDecision[tuple[DeletedTopic, ...]]:
    counts = Counter(command.topics)
    records: dict[uuid.UUID, RemoveTopicRecord] = {}
    results: list[DeletedTopic] = []
    for topic in counts:
        name, topic_id = topic
        error = _deletion_error(topic, counts[topic])
        found = image.topics.get(name) if name is not None else None
        if topic_id is not None:
            found = image.topics_by_id.get(topic_id)
        if error is None and found is None:
            by_name = name is not None
            error = ApiError(ErrorCode.unknown_topic_or_partition if by_name else ErrorCode.unknown_topic_id)
        if error is None and found is not None and found.topic_id in records:
            error = ApiError(
                ErrorCode.invalid_request, "The provided topic name maps to an ID that was already supplied."
            )
        if error is None and found is not None:
            records[found.topic_id] = RemoveTopicRecord(topic_id=found.topic_id)
            name, topic_id = found.name, found.topic_id
        results.append(DeletedTopic(name, topic_id, error or NO_ERROR))
    return ControllerDecision(tuple(records.values()), tuple(results))


def decide_create_partitions(
    image: MetadataImage, command: CreatePartitions
) -> ControllerDecision[tuple[tuple[str, ApiError], ...]]:
    counts = Counter(topic.name for topic in command.topics)
    records: list[PartitionRecord] = []
    results: dict[str, ApiError] = {}
    for topic in command.topics:
        if counts[topic.name] > 1:
            results[topic.name] = _DUPLICATE_NAME
            continue
        try:
            records += _new_partition_records(image, topic, command.placement_start + len(records))
            results[topic.name] = NO_ERROR
        except KafkaError as error:
            # As Kafka: no message for this code.
            unknown = error.code is ErrorCode.unknown_topic_or_partition
            results[topic.name] = ApiError(error.code, None if unknown else error.message)
    if len(records) > PARTITIONS_PER_REQUEST_MAX:
        results, records = dict.fromkeys(results, _too_many_partitions()), []
    return ControllerDecision(() if command.validate_only else tuple(records), tuple(results.items()))


def _check_name(image: MetadataImage, name: str, metric_names: MetricNames) -> None:
    if name == METADATA_TOPIC:
        raise KafkaError(ErrorCode.invalid_request, f"Creation of internal topic {name} is prohibited.")
    if name in image.topics:
        raise KafkaError(ErrorCode.topic_already_exists, f"Topic '{name}' already exists.")
    reason = topic_name_error(name)
    if reason is not None:
        raise KafkaError(ErrorCode.invalid_topic_exception, reason)
    other = metric_names.colliding_topic(name)
    if other is not None:
        raise KafkaError(
            ErrorCode.invalid_topic_exception, f"Topic '{name}' collides with existing topic: {other}"
        )


def _config_records(image: MetadataImage, topic: NewTopic, validate: ConfigValidator) -> list[ConfigRecord]:
    missing = [name for name, value in topic.configs if value is None]
    if missing:
        raise KafkaError(
            ErrorCode.invalid_config, f"Null value not supported for topic configs: {','.join(missing)}"
        )
    resource = ConfigResource(ResourceType.TOPIC, topic.name)
    return alter_records(image, resource, dict(topic.configs), validate, is_new_topic=True)


def _assignments(
    image: MetadataImage, topic: NewTopic, settings: ControllerSettings, start: int
) -> list[tuple[int, ...]]:
    if topic.assignments:
        return _manual_assignments(image, topic)
    if topic.replication_factor < -1 or topic.replication_factor == 0:
        raise KafkaError(
            ErrorCode.invalid_replication_factor,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if topic.num_partitions < -1 or topic.num_partitions == 0:
        raise KafkaError(
            ErrorCode.invalid_partitions, "Number of partitions was set to an invalid non-positive value."
        )
    partitions = settings.num_partitions if topic.num_partitions == -1 else topic.num_partitions
    replicas = (
        settings.default_replication_factor if topic.replication_factor == -1 else topic.replication_factor
    )
    if partitions > PARTITIONS_PER_REQUEST_MAX:
        error = _too_many_partitions()
        raise KafkaError(error.code, error.message or "")
    return place_replicas(image.brokers.values(), partitions, replicas, start)


def _manual_assignments(image: MetadataImage, topic: NewTopic) -> list[tuple[int, ...]]:
    for given, what in (
        (topic.replication_factor, "replication factor"),
        (topic.num_partitions, "numPartitions"),
    ):
        if given != -1:
            raise KafkaError(
                ErrorCode.invalid_request,
                f"A manual partition assignment was specified, but {what} was not set to -1.",
            )
    placed: dict[int, tuple[int, ...]] = {}
    for partition, replicas in topic.assignments:
        if partition in placed:
            raise KafkaError(
                ErrorCode.invalid_replica_assignment,
                f"Found multiple manual partition assignments for partition {partition}",
            )
        _check_assignment(image, partition, replicas, expected=len(topic.assignments[0][1]))
        placed[partition] = replicas
    if sorted(placed) != list(range(len(placed))):
        raise KafkaError(
            ErrorCode.invalid_replica_assignment,
            "partitions should be a consecutive 0-based integer sequence",
        )
    return [placed[partition] for partition in range(len(placed))]


def _check_assignment(image: MetadataImage, partition: int, replicas: tuple[int, ...], expected: int) -> None:
    check_replicas(image, replicas, expected)
    if not any(image.is_active(broker) for broker in replicas):
        raise KafkaError(
            ErrorCode.invalid_replica_assignment,
            f"All brokers specified in the manual partition assignment for partition {partition} are fenced or in "
            "controlled shutdown.",
        )


def _new_partition_records(image: MetadataImage, topic: NewPartitions, start: int) -> list[PartitionRecord]:
    found = image.topics.get(topic.name)
    if found is None:
        raise KafkaError(ErrorCode.unknown_topic_or_partition, f"The topic '{topic.name}' does not exist.")
    existing = len(found.partitions)
    if topic.total == existing:
        raise KafkaError(ErrorCode.invalid_partitions, f"Topic already has {existing} partition(s).")
    if topic.total < existing:
        raise KafkaError(
            ErrorCode.invalid_partitions,
            f"The topic {topic.name} currently has {existing} partition(s); {topic.total} would not be an increase.",
        )
    added = topic.total - existing
    if added > PARTITIONS_PER_REQUEST_MAX:
        error = _too_many_partitions()
        raise KafkaError(error.code, error.message or "")
    replication_factor = len(found.partitions[0].replicas)
    if topic.assignments is None:
        placed = place_replicas(image.brokers.values(), added, replication_factor, start)
    else:
        if len(topic.assignments) != added:
            only = "only " if len(topic.assignments) < added else ""
            raise KafkaError(
                ErrorCode.invalid_replica_assignment,
                f"Attempted to add {added} additional partition(s), but {only}{len(topic.assignments)} "
                "assignment(s) were specified.",
            )
        for partition, replicas in enumerate(topic.assignments, existing):
            _check_assignment(image, partition, replicas, replication_factor)
        placed = list(topic.assignments)
    return _partition_records(image, found.topic_id, placed, first=existing)


def _partition_records(
    image: MetadataImage, topic_id: uuid.UUID, placed: list[tuple[int, ...]], *, first: int
) -> list[PartitionRecord]:
    directories = {broker_id: new_directory(image, broker_id) for broker_id in image.brokers}
    active = {broker_id for broker_id in image.brokers if image.is_active(broker_id)}
    records = []
    for partition, replicas in enumerate(placed, first):
        isr = tuple(broker for broker in replicas if broker in active)
        records.append(
            PartitionRecord(
                partition_id=partition,
                topic_id=topic_id,
                replicas=replicas,
                isr=isr,
                leader=isr[0],
                leader_epoch=0,
                partition_epoch=0,
                directories=tuple(directories[broker] for broker in replicas),
            )
        )
    return records


def _deletion_error(topic: TopicToDelete, count: int) -> ApiError | None:
    if topic.name is None and topic.topic_id is None:
        return ApiError(ErrorCode.invalid_request, "Neither topic name nor id were specified.")
    if topic.name is not None and topic.topic_id is not None:
        return ApiError(ErrorCode.invalid_request, "You may not specify both topic name and topic id.")
    if count > 1:
        kind = "name" if topic.name is not None else "id"
        return ApiError(ErrorCode.invalid_request, f"Duplicate topic {kind}.")
    return None


def _too_many_partitions() -> ApiError:
    return ApiError(
        ErrorCode.policy_violation,
        f"Excessively large number of partitions per request: at most {PARTITIONS_PER_REQUEST_MAX} are allowed.",
    )
