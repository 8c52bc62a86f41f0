"""A controller machine with its log in a list, for tests."""

import uuid
from collections.abc import Collection, Mapping
from itertools import count
from typing import Any

from ottla.core.controller.commands import (
    ControllerCommand,
    CreateTopics,
    NewTopic,
    RegisterBroker,
    ResponseT,
    UnfenceBroker,
)
from ottla.core.controller.image import METADATA_VERSION, ConfigResource, MetadataImage
from ottla.core.controller.machine import ControllerMachine
from ottla.core.controller.settings import ControllerSettings
from ottla.model.config import validate
from ottla.protocol.metadata_records.codec import METADATA_VERSION_MAX, decode_record, encode_record
from ottla.protocol.metadata_records.records import Endpoint, FeatureLevelRecord, MetadataRecord


def validate_each(
    resource: ConfigResource, configs: Mapping[str, str], altered: Collection[str]
) -> str | None:
    problems = (validate(resource.type, name, value) for name, value in configs.items())
    return next((problem for problem in problems if problem), None)


SETTINGS = ControllerSettings(validate_each, num_partitions=3, default_replication_factor=1)


class Cluster:
    """`log` has the encoded records, so that replay reads the same bytes as from disk."""

    def __init__(self, brokers: int = 1, settings: ControllerSettings = SETTINGS) -> None:
        self.settings = settings
        self.machine = ControllerMachine(settings, MetadataImage())
        self.log: list[bytes] = []
        self._ids = count(1)
        self.write(FeatureLevelRecord(name=METADATA_VERSION, feature_level=METADATA_VERSION_MAX))
        for broker_id in range(1, brokers + 1):
            self.start_broker(broker_id)

    @property
    def image(self) -> MetadataImage:
        return self.machine.image

    def new_id(self) -> uuid.UUID:
        return uuid.UUID(int=next(self._ids) << 64)

    def write(self, *records: MetadataRecord) -> None:
        for record in records:
            self.machine.replay(len(self.log), record, epoch=1)
            self.log.append(encode_record(record))

    def submit(self, command: ControllerCommand[ResponseT]) -> ResponseT:
        decision = self.machine.decide(command, now_ms=0)
        self.write(*decision.records)
        self.machine.validate()
        return decision.response

    def register(self, broker_id: int, rack: str | None = None, directories: int = 1) -> int:
        return self.submit(
            RegisterBroker(
                broker_id,
                self.new_id(),
                (Endpoint(name="PLAINTEXT", host="localhost", port=9092, security_protocol=0),),
                (),
                tuple(self.new_id() for _ in range(directories)),
                rack,
            )
        )

    def start_broker(self, broker_id: int, rack: str | None = None, directories: int = 1) -> int:
        epoch = self.register(broker_id, rack, directories)
        self.submit(UnfenceBroker(broker_id, epoch))
        return epoch

    def create(self, name: str, partitions: int = 1, replication_factor: int = 1, **more: Any) -> None:
        topic = NewTopic(name, self.new_id(), partitions, replication_factor, **more)
        (result,) = self.submit(CreateTopics((topic,)))
        assert result.error.message is None, result

    def replayed(self, from_image: MetadataImage | None = None) -> MetadataImage:
        """The image that a node which starts now gets from the log, after `from_image`."""
        machine = ControllerMachine(self.settings, from_image or MetadataImage())
        start = machine.image.offset + 1
        for offset, data in enumerate(self.log[start:], start):
            machine.replay(offset, decode_record(data), epoch=1)
        return machine.image
