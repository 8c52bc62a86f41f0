"""The commands that a broker sends to a controller in another process, as Kafka's requests.

The handlers of these APIs (k19, k56, k62, k63, k67, k70, k73) do the reverse.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

from kio.schema.allocate_producer_ids.v0.request import AllocateProducerIdsRequest
from kio.schema.allocate_producer_ids.v0.response import AllocateProducerIdsResponse
from kio.schema.alter_partition.v3.request import AlterPartitionRequest, BrokerState
from kio.schema.alter_partition.v3.request import PartitionData as AlteredPartitionData
from kio.schema.alter_partition.v3.request import TopicData as AlteredTopic
from kio.schema.alter_partition.v3.response import AlterPartitionResponse
from kio.schema.assign_replicas_to_dirs.v0.request import AssignReplicasToDirsRequest, DirectoryData
from kio.schema.assign_replicas_to_dirs.v0.request import PartitionData as AssignedPartitionData
from kio.schema.assign_replicas_to_dirs.v0.request import TopicData as AssignedTopic
from kio.schema.assign_replicas_to_dirs.v0.response import AssignReplicasToDirsResponse
from kio.schema.broker_heartbeat.v1.request import BrokerHeartbeatRequest as BrokerHeartbeatRequestV1
from kio.schema.broker_heartbeat.v1.response import BrokerHeartbeatResponse
from kio.schema.broker_heartbeat.v2.request import BrokerHeartbeatRequest
from kio.schema.broker_registration.v4.request import BrokerRegistrationRequest
from kio.schema.broker_registration.v4.request import Feature as BrokerFeature
from kio.schema.broker_registration.v4.request import Listener as BrokerListener
from kio.schema.broker_registration.v4.response import BrokerRegistrationResponse
from kio.schema.controller_registration.v0.request import ControllerRegistrationRequest
from kio.schema.controller_registration.v0.request import Feature as ControllerFeature
from kio.schema.controller_registration.v0.request import Listener as ControllerListener
from kio.schema.controller_registration.v0.response import ControllerRegistrationResponse
from kio.schema.create_topics.v7.request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kio.schema.create_topics.v7.response import CreateTopicsResponse

from ottla.broker.active_controller import OnlyDecidedLocally
from ottla.core.controller.commands import (
    AllocateProducerIds,
    AlterPartition,
    AlterPartitionResult,
    ApiError,
    AssignedReplica,
    AssignReplicasToDirs,
    BrokerHeartbeat,
    ControllerCommand,
    CreateTopics,
    HeartbeatReply,
    NewTopic,
    NewTopicResult,
    ProducerIdBlock,
    RegisterBroker,
    RegisterController,
    ResponseT,
)
from ottla.model.config.definition import ConfigSource
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import ZERO_UUID
from ottla.rpc.node_connections import NodeConnections

_TIMEOUT_S = 30.0


class _RemoteCommand(NamedTuple):
    to_request: Callable[[Any, str], Any]
    response_type: type[Any]
    to_response: Callable[[Any, Any], Any]


async def call_controller(
    connections: NodeConnections,
    controller_id: int,
    command: ControllerCommand[ResponseT],
    cluster_id: str,
    timeout_s: float,
) -> ResponseT:
    """Raises OSError if there is no response, and KafkaError if the controller rejects the command."""
    remote = _REMOTE_COMMANDS.get(type(command))
    if remote is None:
        raise OnlyDecidedLocally(
            ErrorCode.not_controller, f"{type(command).__name__} is decided by node {controller_id} only"
        )
    response = await connections.call(
        controller_id, remote.to_request(command, cluster_id), remote.response_type, timeout_s
    )
    code = getattr(response, "error_code", ErrorCode.none)
    if code is not ErrorCode.none:
        message = getattr(response, "error_message", None)
        raise KafkaError(
            code, message or f"controller {controller_id} rejects {type(command).__name__}: {code.name}"
        )
    result: ResponseT = remote.to_response(command, response)
    return result


def _registration_request(command: RegisterBroker, cluster_id: str) -> BrokerRegistrationRequest:
    return BrokerRegistrationRequest(
        broker_id=command.broker_id,
        cluster_id=cluster_id,
        incarnation_id=command.incarnation_id,
        listeners=tuple(
            BrokerListener(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in command.end_points
        ),
        features=tuple(
            BrokerFeature(
                name=feature.name,
                min_supported_version=feature.min_supported_version,
                max_supported_version=feature.max_supported_version,
            )
            for feature in command.features
        ),
        rack=command.rack,
        log_dirs=command.log_dirs,
        previous_broker_epoch=command.previous_broker_epoch,
    )


def _heartbeat_request(
    command: BrokerHeartbeat, cluster_id: str
) -> BrokerHeartbeatRequest | BrokerHeartbeatRequestV1:
    """Only v2 has cordoned directories; controllers of older releases do not know it. The responses are the same."""
    fields: dict[str, Any] = {
        "broker_id": command.broker_id,
        "broker_epoch": command.broker_epoch,
        "current_metadata_offset": command.current_metadata_offset,
        "want_fence": command.want_fence,
        "want_shut_down": command.want_shut_down,
        "offline_log_dirs": command.offline_log_dirs,
    }
    if command.cordoned_log_dirs is None:
        return BrokerHeartbeatRequestV1(**fields)
    return BrokerHeartbeatRequest(**fields, cordoned_log_dirs=command.cordoned_log_dirs)


def _heartbeat_reply(command: BrokerHeartbeat, response: BrokerHeartbeatResponse) -> HeartbeatReply:
    return HeartbeatReply(response.is_caught_up, response.is_fenced, response.should_shut_down)


def _controller_registration_request(
    command: RegisterController, cluster_id: str
) -> ControllerRegistrationRequest:
    return ControllerRegistrationRequest(
        controller_id=command.controller_id,
        incarnation_id=command.incarnation_id,
        zk_migration_ready=False,
        listeners=tuple(
            ControllerListener(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in command.end_points
        ),
        features=tuple(
            ControllerFeature(
                name=feature.name,
                min_supported_version=feature.min_supported_version,
                max_supported_version=feature.max_supported_version,
            )
            for feature in command.features
        ),
    )


def _alter_partition_request(command: AlterPartition, cluster_id: str) -> AlterPartitionRequest:
    return AlterPartitionRequest(
        broker_id=command.broker_id,
        broker_epoch=command.broker_epoch,
        topics=tuple(
            AlteredTopic(
                topic_id=topic.topic_id,
                partitions=tuple(
                    AlteredPartitionData(
                        partition_index=partition.index,
                        leader_epoch=partition.leader_epoch,
                        new_isr_with_epochs=tuple(
                            BrokerState(broker_id=broker_id, broker_epoch=epoch)
                            for broker_id, epoch in partition.new_isr
                        ),
                        leader_recovery_state=partition.leader_recovery_state,
                        partition_epoch=partition.partition_epoch,
                    )
                    for partition in topic.partitions
                ),
            )
            for topic in command.topics
        ),
    )


def _altered_partitions(
    command: AlterPartition, response: AlterPartitionResponse
) -> tuple[AlterPartitionResult, ...]:
    return tuple(
        AlterPartitionResult(
            topic.topic_id or ZERO_UUID,
            partition.partition_index,
            partition.error_code,
            partition.leader_id,
            partition.leader_epoch,
            partition.isr,
            partition.leader_recovery_state,
            partition.partition_epoch,
        )
        for topic in response.topics
        for partition in topic.partitions
    )


def _assign_replicas_request(command: AssignReplicasToDirs, cluster_id: str) -> AssignReplicasToDirsRequest:
    return AssignReplicasToDirsRequest(
        broker_id=command.broker_id,
        broker_epoch=command.broker_epoch,
        directories=tuple(
            DirectoryData(
                id_=directory_id,
                topics=tuple(
                    AssignedTopic(
                        topic_id=topic_id,
                        partitions=tuple(AssignedPartitionData(partition_index=index) for index in indexes),
                    )
                    for topic_id, indexes in topics
                ),
            )
            for directory_id, topics in command.directories
        ),
    )


def _assigned_replicas(
    command: AssignReplicasToDirs, response: AssignReplicasToDirsResponse
) -> tuple[AssignedReplica, ...]:
    return tuple(
        AssignedReplica(
            directory.id_ or ZERO_UUID,
            topic.topic_id or ZERO_UUID,
            partition.partition_index,
            partition.error_code,
        )
        for directory in response.directories
        for topic in directory.topics
        for partition in topic.partitions
    )


def _create_topics_request(command: CreateTopics, cluster_id: str) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=tuple(_creatable(topic) for topic in command.topics),
        timeout=timedelta(seconds=_TIMEOUT_S),
        validate_only=command.validate_only,
    )


def _creatable(topic: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=tuple(
            CreatableReplicaAssignment(partition_index=partition, broker_ids=replicas)
            for partition, replicas in topic.assignments
        ),
        configs=tuple(CreatableTopicConfig(name=name, value=value) for name, value in topic.configs),
    )


def _created_topics(command: CreateTopics, response: CreateTopicsResponse) -> tuple[NewTopicResult, ...]:
    return tuple(
        NewTopicResult(
            topic.name,
            ApiError(topic.error_code, topic.error_message),
            topic.topic_id,
            topic.num_partitions,
            topic.replication_factor,
            {
                config.name: config.value
                for config in topic.configs or ()
                if config.config_source == ConfigSource.DYNAMIC_TOPIC_CONFIG and config.value is not None
            },
        )
        for topic in response.topics
    )


_REMOTE_COMMANDS: dict[type[Any], _RemoteCommand] = {
    RegisterBroker: _RemoteCommand(
        _registration_request, BrokerRegistrationResponse, lambda command, response: response.broker_epoch
    ),
    BrokerHeartbeat: _RemoteCommand(_heartbeat_request, BrokerHeartbeatResponse, _heartbeat_reply),
    RegisterController: _RemoteCommand(
        _controller_registration_request, ControllerRegistrationResponse, lambda command, response: None
    ),
    AllocateProducerIds: _RemoteCommand(
        lambda command, cluster_id: AllocateProducerIdsRequest(
            broker_id=command.broker_id, broker_epoch=command.broker_epoch
        ),
        AllocateProducerIdsResponse,
        lambda command, response: ProducerIdBlock(response.producer_id_start, response.producer_id_len),
    ),
    AlterPartition: _RemoteCommand(_alter_partition_request, AlterPartitionResponse, _altered_partitions),
    AssignReplicasToDirs: _RemoteCommand(
        _assign_replicas_request, AssignReplicasToDirsResponse, _assigned_replicas
    ),
    CreateTopics: _RemoteCommand(_create_topics_request, CreateTopicsResponse, _created_topics),
}
