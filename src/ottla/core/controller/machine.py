"""The controller: takes commands, returns records and a response, and keeps the image that the records produce."""

from collections.abc import Callable, Sequence
from typing import Any

from ottla.core.controller.alter_partition import decide_alter_partition
from ottla.core.controller.brokers import (
    decide_register_broker,
    decide_register_controller,
    decide_unregister_broker,
    registered_broker,
)
from ottla.core.controller.cluster_edit import ClusterEdit
from ottla.core.controller.commands import (
    AllocateProducerIds,
    AlterConfigs,
    AlterPartition,
    AlterReassignments,
    AssignReplicasToDirs,
    BalanceLeaders,
    BrokerDisconnected,
    BrokerHeartbeat,
    ControllerCommand,
    ControllerDecision,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    ElectLeaders,
    ElectLostLeaders,
    FenceStaleBrokers,
    IncrementalAlterConfigs,
    ProducerIdBlock,
    RegisterBroker,
    RegisterController,
    ResponseT,
    UnregisterBroker,
    UpdateFeatures,
    WriteNoOp,
)
from ottla.core.controller.configs import decide_alter_configs, decide_incremental_alter_configs
from ottla.core.controller.features import decide_update_features
from ottla.core.controller.heartbeats import (
    decide_broker_disconnected,
    decide_fence_stale_brokers,
    decide_heartbeat,
)
from ottla.core.controller.image import MetadataImage
from ottla.core.controller.invariants import validate_image
from ottla.core.controller.leader_elections import (
    decide_balance_leaders,
    decide_elect_leaders,
    decide_elect_lost_leaders,
)
from ottla.core.controller.partition_index import PartitionIndex, PartitionKey
from ottla.core.controller.reassignment import decide_alter_reassignments
from ottla.core.controller.replay import MetadataReplay
from ottla.core.controller.replica_directories import decide_assign_replicas
from ottla.core.controller.sessions import BrokerSessions
from ottla.core.controller.settings import ControllerSettings
from ottla.core.controller.topics import (
    decide_create_partitions,
    decide_create_topics,
    decide_delete_topics,
)
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.metadata_records.records import MetadataRecord, NoOpRecord, ProducerIdsRecord

_PRODUCER_IDS_PER_BLOCK = 1000
_PRODUCER_ID_MAX = 2**63 - 1


class ControllerMachine:
    """Decides on the newest image, even if its records are not committed yet, so that several commands can be decided
    before the log is flushed.

    The caller must not show an image or a response before the records are committed, must replay the records of each
    decision before the next one, and must drop the machine when it loses the leadership.
    """

    def __init__(self, settings: ControllerSettings, image: MetadataImage) -> None:
        self.settings = settings
        self._index = PartitionIndex(image)
        self._sessions = BrokerSessions(settings)
        self._replay = MetadataReplay(image, self._index)
        self._rest: Sequence[PartitionKey] = ()  # of the decision that is being made

    @property
    def image(self) -> MetadataImage:
        """The metadata with all replayed records."""
        return self._replay.image

    @property
    def in_transaction(self) -> bool:
        """Whether a metadata transaction (KIP-868) is open; a new leader has to abort it."""
        return self._replay.in_transaction

    def decide(
        self, command: ControllerCommand[ResponseT], now_ms: int, rest: Sequence[PartitionKey] = ()
    ) -> ControllerDecision[ResponseT]:
        """Changes no metadata, only the sessions of brokers. Raises KafkaError if the whole command is rejected.

        `rest` is that of the previous part of the decision, for which `now_ms` must be the same.
        """
        self._rest = rest
        decision: ControllerDecision[ResponseT] = DECIDE[type(command)](self, command, now_ms)
        return decision

    def on_activated(self, now_ms: int) -> None:
        """This node has become the active controller: every broker that is not fenced must report to it soon."""
        for broker in self.image.brokers.values():
            if broker.fenced:
                self._sessions.suspect_fenced(broker.broker_id, now_ms)
            else:
                self._sessions.expect(broker.broker_id, now_ms)

    def next_timeout_ms(self) -> int | None:
        """When to submit `FenceStaleBrokers`; None if all brokers are fenced, and none of them on evidence only."""
        return self._sessions.next_deadline_ms()

    def replay(self, offset: int, record: MetadataRecord, epoch: int = 0) -> None:
        self._replay.replay(offset, record, epoch)

    def skip_to(self, offset: int, epoch: int) -> None:
        """The log continues to `offset` with records that the controller ignores (control records)."""
        self._replay.skip_to(offset, epoch)

    def validate(self) -> None:
        """Raises AssertionError if the state is inconsistent."""
        validate_image(self.image)
        self._index.validate(self.image)
        for broker_id in self._sessions:
            broker = self.image.brokers.get(broker_id)
            assert broker is not None, f"broker {broker_id} has a session but is not registered"
            assert not broker.fenced, f"broker {broker_id} has a session but is fenced"

    def _edit(self) -> ClusterEdit:
        return ClusterEdit(self.image, self._index, self.settings, self._rest, self._sessions.suspected)

    def _register_broker(self, command: RegisterBroker, now_ms: int) -> ControllerDecision[int]:
        return decide_register_broker(self._edit(), self._sessions, command, self._replay.offset + 1, now_ms)

    def _allocate_producer_ids(
        self, command: AllocateProducerIds, now_ms: int
    ) -> ControllerDecision[ProducerIdBlock]:
        registered_broker(self.image, command.broker_id, command.broker_epoch)
        first = self.image.next_producer_id
        if first > _PRODUCER_ID_MAX - _PRODUCER_IDS_PER_BLOCK:
            raise KafkaError(
                ErrorCode.unknown_server_error,
                f"No producer ids are left: the next block would begin at {first}",
            )
        record = ProducerIdsRecord(
            broker_id=command.broker_id,
            broker_epoch=command.broker_epoch,
            next_producer_id=first + _PRODUCER_IDS_PER_BLOCK,
        )
        return ControllerDecision((record,), ProducerIdBlock(first, _PRODUCER_IDS_PER_BLOCK))


DECIDE: dict[type[Any], Callable[[ControllerMachine, Any, int], ControllerDecision[Any]]] = {
    RegisterBroker: ControllerMachine._register_broker,
    BrokerHeartbeat: lambda machine, command, now_ms: decide_heartbeat(
        machine._edit(), machine._sessions, command, now_ms
    ),
    BrokerDisconnected: lambda machine, command, now_ms: decide_broker_disconnected(
        machine.image, machine._sessions, command, now_ms
    ),
    FenceStaleBrokers: lambda machine, command, now_ms: decide_fence_stale_brokers(
        machine._edit(), machine._sessions, now_ms
    ),
    UnregisterBroker: lambda machine, command, now_ms: decide_unregister_broker(
        machine._edit(), machine._sessions, command
    ),
    RegisterController: lambda machine, command, now_ms: decide_register_controller(machine.image, command),
    AlterPartition: lambda machine, command, now_ms: decide_alter_partition(machine._edit(), command),
    AssignReplicasToDirs: lambda machine, command, now_ms: decide_assign_replicas(machine._edit(), command),
    ElectLeaders: lambda machine, command, now_ms: decide_elect_leaders(machine._edit(), command),
    AlterReassignments: lambda machine, command, now_ms: decide_alter_reassignments(machine._edit(), command),
    BalanceLeaders: lambda machine, command, now_ms: decide_balance_leaders(machine._edit()),
    ElectLostLeaders: lambda machine, command, now_ms: decide_elect_lost_leaders(machine._edit()),
    CreateTopics: lambda machine, command, now_ms: decide_create_topics(
        machine.image, command, machine.settings
    ),
    DeleteTopics: lambda machine, command, now_ms: decide_delete_topics(machine.image, command),
    CreatePartitions: lambda machine, command, now_ms: decide_create_partitions(machine.image, command),
    IncrementalAlterConfigs: lambda machine, command, now_ms: decide_incremental_alter_configs(
        machine.image, command, machine.settings.validate_configs
    ),
    AlterConfigs: lambda machine, command, now_ms: decide_alter_configs(
        machine.image, command, machine.settings.validate_configs
    ),
    AllocateProducerIds: ControllerMachine._allocate_producer_ids,
    UpdateFeatures: lambda machine, command, now_ms: decide_update_features(
        machine.image, command, machine.settings
    ),
    WriteNoOp: lambda machine, command, now_ms: ControllerDecision((NoOpRecord(),), None),
}
