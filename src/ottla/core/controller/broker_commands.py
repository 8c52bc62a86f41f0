"""The commands of brokers and controllers about themselves: that they have started, live, and stop."""

import uuid
from dataclasses import dataclass
from typing import NamedTuple

from ottla.core.controller.decision import ControllerCommand
from ottla.protocol.metadata_records.records import Endpoint, FeatureRange


@dataclass(frozen=True, slots=True)
class RegisterBroker(ControllerCommand[int]):
    """A broker's process has started (KIP-631). Returns the broker epoch. Fenced until its first `BrokerHeartbeat`.

    `previous_broker_epoch` is the epoch of the broker's last process if it has stopped cleanly (KIP-966), otherwise -1.
    `is_local`: the broker runs in the process of the active controller, so its earlier processes cannot be alive.
    """

    broker_id: int
    incarnation_id: uuid.UUID
    end_points: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...]
    log_dirs: tuple[uuid.UUID, ...]
    rack: str | None = None
    previous_broker_epoch: int = -1
    is_local: bool = False


class HeartbeatReply(NamedTuple):
    """`is_caught_up`: the broker knows the metadata up to its own registration."""

    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool


@dataclass(frozen=True, slots=True)
class BrokerHeartbeat(ControllerCommand[HeartbeatReply]):
    """A broker is alive, and may become a leader unless it wants to be fenced or to shut down.

    `current_metadata_offset` is the last metadata record that it has applied. `offline_log_dirs` are the directories
    that have failed since its process started (KIP-858), `cordoned_log_dirs` those that get no new replicas (KIP-1066);
    None before the broker knows its dynamic configs. `connection` identifies the connection that it came on; it is
    None if it comes from the process of the controller.
    """

    broker_id: int
    broker_epoch: int
    current_metadata_offset: int
    want_fence: bool = False
    want_shut_down: bool = False
    offline_log_dirs: tuple[uuid.UUID, ...] = ()
    cordoned_log_dirs: tuple[uuid.UUID, ...] | None = None
    connection: object = None


@dataclass(frozen=True, slots=True)
class BrokerDisconnected(ControllerCommand[None]):
    """The connection of a broker's heartbeats was closed: its session ends soon, unless it sends another heartbeat."""

    broker_id: int
    broker_epoch: int
    connection: object = None


@dataclass(frozen=True, slots=True)
class FenceStaleBrokers(ControllerCommand[None]):
    """Fences the brokers whose session has expired. To submit at `ControllerMachine.next_timeout_ms`."""


@dataclass(frozen=True, slots=True)
class UnregisterBroker(ControllerCommand[None]):
    broker_id: int


@dataclass(frozen=True, slots=True)
class RegisterController(ControllerCommand[None]):
    """A controller's process has started (KIP-919)."""

    controller_id: int
    incarnation_id: uuid.UUID
    end_points: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...]


class ProducerIdBlock(NamedTuple):
    first: int
    size: int


@dataclass(frozen=True, slots=True)
class AllocateProducerIds(ControllerCommand[ProducerIdBlock]):
    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class WriteNoOp(ControllerCommand[None]):
    """Advances the metadata log, so that a cluster without changes still shows progress (KIP-835)."""
