"""The controller: takes commands, returns records and a response, and keeps the image that the records produce."""

from collections.abc import Callable
from typing import Any

from ottla.core.controller.brokers import (
    decide_fence_broker,
    decide_register_broker,
    decide_register_controller,
    decide_unfence_broker,
    decide_unregister_broker,
    registered_broker,
)
from ottla.core.controller.commands import (
    AllocateProducerIds,
    AlterConfigs,
    ControllerCommand,
    ControllerDecision,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    FenceBroker,
    IncrementalAlterConfigs,
    ProducerIdBlock,
    RegisterBroker,
    RegisterController,
    ResponseT,
    UnfenceBroker,
    UnregisterBroker,
    UpdateFeatures,
)
from ottla.core.controller.configs import decide_alter_configs, decide_incremental_alter_configs
from ottla.core.controller.features import decide_update_features
from ottla.core.controller.image import MetadataImage
from ottla.core.controller.invariants import validate_image
from ottla.core.controller.replay import MetadataReplay
from ottla.core.controller.settings import ControllerSettings
from ottla.core.controller.topics import (
    decide_create_partitions,
    decide_create_topics,
    decide_delete_topics,
)
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.metadata_records.records import MetadataRecord, ProducerIdsRecord

_PRODUCER_IDS_PER_BLOCK = 1000
_PRODUCER_ID_MAX = 2**63 - 1


class ControllerMachine:
    """Decides on the newest image, even if its records are not committed yet, so that several commands can be decided
    before the log is flushed.

    The caller must not show an image or a response before the records are committed, and must drop the machine when
    it loses the leadership.
    """

    def __init__(self, settings: ControllerSettings, image: MetadataImage) -> None:
        self.settings = settings
        self._replay = MetadataReplay(image)

    @property
    def image(self) -> MetadataImage:
        """The metadata with all replayed records."""
        return self._replay.image

    @property
    def in_transaction(self) -> bool:
        """Whether a metadata transaction (KIP-868) is open; a new leader has to abort it."""
        return self._replay.in_transaction

    def decide(self, command: ControllerCommand[ResponseT], now_ms: int) -> ControllerDecision[ResponseT]:
        """Changes no state. Raises KafkaError if the whole command is rejected."""
        decision: ControllerDecision[ResponseT] = DECIDE[type(command)](self, command)
        return decision

    def replay(self, offset: int, record: MetadataRecord, epoch: int = 0) -> None:
        self._replay.replay(offset, record, epoch)

    def skip_to(self, offset: int, epoch: int) -> None:
        """The log continues to `offset` with records that the controller ignores (control records)."""
        self._replay.skip_to(offset, epoch)

    def validate(self) -> None:
        """Raises AssertionError if the image is inconsistent."""
        validate_image(self.image)

    def _register_broker(self, command: RegisterBroker) -> ControllerDecision[int]:
        # The epoch is derived from the offset of the registration, so it is above every earlier epoch.
        return decide_register_broker(self.image, command, self._replay.offset + 1)

    def _allocate_producer_ids(self, command: AllocateProducerIds) -> ControllerDecision[ProducerIdBlock]:
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


DECIDE: dict[type[Any], Callable[[ControllerMachine, Any], ControllerDecision[Any]]] = {
    RegisterBroker: ControllerMachine._register_broker,
    UnfenceBroker: lambda machine, command: decide_unfence_broker(machine.image, command),
    FenceBroker: lambda machine, command: decide_fence_broker(machine.image, command),
    UnregisterBroker: lambda machine, command: decide_unregister_broker(machine.image, command),
    RegisterController: lambda machine, command: decide_register_controller(command),
    CreateTopics: lambda machine, command: decide_create_topics(machine.image, command, machine.settings),
    DeleteTopics: lambda machine, command: decide_delete_topics(machine.image, command),
    CreatePartitions: lambda machine, command: decide_create_partitions(machine.image, command),
    IncrementalAlterConfigs: lambda machine, command: decide_incremental_alter_configs(
        machine.image, command, machine.settings.validate_configs
    ),
    AlterConfigs: lambda machine, command: decide_alter_configs(
        machine.image, command, machine.settings.validate_configs
    ),
    AllocateProducerIds: ControllerMachine._allocate_producer_ids,
    UpdateFeatures: lambda machine, command: decide_update_features(machine.image, command, machine.settings),
}
