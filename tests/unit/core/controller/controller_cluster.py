"""A controller machine with its log in a list, for tests."""

import uuid
from collections.abc import Collection, Iterator, Mapping
from itertools import count
from typing import Any

from ottla.core.controller.commands import (
    BrokerHeartbeat,
    ControllerCommand,
    ControllerDecision,
    CreateTopics,
    HeartbeatReply,
    NewTopic,
    RegisterBroker,
    ResponseT,
)
from ottla.core.controller.image import METADATA_VERSION, ConfigResource, MetadataImage, PartitionImage
from ottla.core.controller.machine import ControllerMachine
from ottla.core.controller.settings import ControllerSettings, supported_feature_ranges
from ottla.model.config import validate
from ottla.protocol.metadata_records.codec import METADATA_VERSION_MAX, decode_record, encode_record
from ottla.protocol.metadata_records.records import (
    Endpoint,
    FeatureLevelRecord,
    MetadataRecord,
)


def validate_each(
    resource: ConfigResource, configs: Mapping[str, str], altered: Collection[str]
) -> str | None:
    problems = (validate(resource.type, name, value) for name, value in configs.items())
    return next((problem for problem in problems if problem), None)


SETTINGS = ControllerSettings(validate_each, num_partitions=3, default_replication_factor=1)


class Cluster:
    """`log` has the encoded records, so that replay reads the same bytes as from disk. `now_ms` is the time."""

    def __init__(
        self,
        brokers: int = 1,
        settings: ControllerSettings = SETTINGS,
        features: Mapping[str, int] | None = None,
    ) -> None:
        self.settings = settings
        self.now_ms = 1_000_000
        self.machine = ControllerMachine(settings, MetadataImage())
        self.log: list[bytes] = []
        self._ids = count(1)
        self.write(FeatureLevelRecord(name=METADATA_VERSION, feature_level=METADATA_VERSION_MAX))
        for name, level in (features or {}).items():
            self.write(FeatureLevelRecord(name=name, feature_level=level))
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
        *_, last = self.parts(command)
        self.machine.validate()
        if last.follow_up is not None:
            self.submit(last.follow_up)
        return last.response

    def parts(self, command: ControllerCommand[ResponseT]) -> Iterator[ControllerDecision[ResponseT]]:
        """Decides the command part by part, and writes the records of each."""
        decision = self.machine.decide(command, self.now_ms)
        self.write(*decision.records)
        yield decision
        while decision.rest:
            decision = self.machine.decide(command, self.now_ms, decision.rest)
            self.write(*decision.records)
            yield decision

    def registration(
        self, broker_id: int, rack: str | None = None, directories: int = 1, **more: Any
    ) -> RegisterBroker:
        """A new process of the broker, on the same disks as the one before."""
        before = self.image.brokers.get(broker_id)
        log_dirs = tuple(self.new_id() for _ in range(directories))
        if before is not None and len(before.log_dirs) == directories:
            log_dirs = tuple(each for each in before.log_dirs if each is not None)
        return RegisterBroker(
            broker_id,
            self.new_id(),
            (Endpoint(name="PLAINTEXT", host=f"host{broker_id}", port=9092, security_protocol=0),),
            supported_feature_ranges(),
            log_dirs,
            rack,
            **more,
        )

    def register(self, broker_id: int, rack: str | None = None, directories: int = 1, **more: Any) -> int:
        """Also while an earlier process has a valid session, as if the broker ran beside the controller."""
        return self.submit(self.registration(broker_id, rack, directories, **{"is_local": True, **more}))

    def heartbeat(self, broker_id: int, *, offset: int | None = None, **more: Any) -> HeartbeatReply:
        epoch = self.image.brokers[broker_id].epoch
        known = self.image.offset if offset is None else offset
        return self.submit(BrokerHeartbeat(broker_id, epoch, known, **more))

    def start_broker(self, broker_id: int, rack: str | None = None, directories: int = 1, **more: Any) -> int:
        epoch = self.register(broker_id, rack, directories, **more)
        self.heartbeat(broker_id)
        return epoch

    def fence(self, broker_id: int) -> None:
        self.heartbeat(broker_id, want_fence=True)

    def partition(self, topic: str = "a", index: int = 0) -> PartitionImage:
        found = self.image.partition(topic, index)
        assert found is not None
        return found

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
