"""The services that handlers and coordinators work with.

`ottla.broker.node` builds them when the broker starts, complete and immutable. Request handlers that need no more than
`NodeServices` can be served by a node of any role; the others need the broker role.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kio.schema.envelope.v0.request import EnvelopeRequest

    from ottla.broker.background_tasks import BackgroundTasks
    from ottla.broker.coordinators.groups import GroupCoordinator
    from ottla.broker.coordinators.transactions import TransactionCoordinator
    from ottla.broker.delayed_operations import DelayedOperations
    from ottla.broker.fair_scheduler import FairScheduler
    from ottla.broker.lazy import Lazy
    from ottla.broker.partition_host import PartitionHost
    from ottla.broker.producer_ids import ProducerIds
    from ottla.broker.quorum.quorum import Quorum
    from ottla.broker.replication.throttles import ReplicationThrottles
    from ottla.broker.serial_thread import SerialThread
    from ottla.core.client_telemetry import ClientInstance, ClientTelemetry
    from ottla.core.controller.commands import ControllerCommand, ResponseT
    from ottla.core.controller.image import MetadataImage
    from ottla.core.fetch_session import FetchSessionCache
    from ottla.env import Env
    from ottla.model.config import BrokerConfig
    from ottla.protocol.api_keys import ApiKey
    from ottla.rpc.node_connections import NodeConnections
    from ottla.storage.log_dirs import LogDirs


class MetadataCache(Protocol):
    """The committed metadata of the cluster, as far as this node knows it."""

    @property
    def image(self) -> "MetadataImage": ...


class ControllerClient(Protocol):
    """The way to the active controller (`ottla.broker.active_controller`)."""

    @property
    def is_local(self) -> bool:
        """Whether this node is the active controller, or can be no other."""
        ...

    async def submit(
        self, command: "ControllerCommand[ResponseT]", timeout_s: float | None = None
    ) -> "ResponseT":
        """The controller's response to `command`. Raises KafkaError if it rejects the whole command."""
        ...

    async def forward(self, envelope: "EnvelopeRequest") -> bytes:
        """The response of the active controller to a client's request. Raises KafkaError."""
        ...


class ClientMetricsReceiver(Protocol):
    """Takes the metrics that clients push (`ottla.broker.metrics.clients`)."""

    async def receive(self, instance: "ClientInstance", data: bytes) -> None:
        """Raises KafkaError if `data` is malformed."""
        ...


@dataclass(frozen=True, slots=True)
class NodeServices:
    """What every node has, whatever its roles."""

    config: "BrokerConfig"
    env: "Env"
    cluster_id: str
    metadata: MetadataCache
    controller: ControllerClient
    quorum: "Quorum"
    tasks: "BackgroundTasks"
    scheduler: "FairScheduler"
    message_thread: "SerialThread"  # decodes and encodes long messages


@dataclass(frozen=True, slots=True)
class BrokerServices(NodeServices):
    """What a node with the broker role has besides: partitions and coordinators."""

    log_dirs: "LogDirs"
    partitions: "PartitionHost"
    delayed_operations: "DelayedOperations"
    record_thread: "SerialThread"  # reads the records of batches
    telemetry_thread: (
        "SerialThread"  # reads what clients push, so that no request of another client waits for it
    )
    producer_ids: "ProducerIds"
    # For the topics that Metadata and FindCoordinator create. A request that times out ends its connection, and these
    # time out soon: no other request may be on it.
    topic_creation: ControllerClient
    # AddRaftVoter waits until the new voter has caught up, and RemoveRaftVoter for a commit: nothing may wait behind
    # them, and a removal not behind the addition that it ends (KIP-853).
    voter_changes: "Mapping[ApiKey, ControllerClient]"
    throttles: "ReplicationThrottles"
    # New connections to the other brokers, which serve one request at a time for each connection.
    connect_to_brokers: "Callable[[], NodeConnections]"
    telemetry: "ClientTelemetry"
    fetch_sessions: "Lazy[FetchSessionCache]"
    groups: "Lazy[GroupCoordinator]"
    transactions: "Lazy[TransactionCoordinator]"
    # None if neither metrics are served nor those of clients are forwarded: clients are not asked for any then.
    client_metrics: ClientMetricsReceiver | None = None
