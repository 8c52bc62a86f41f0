"""The transaction coordinator of this broker: a shard for each partition of `__transaction_state` that it leads."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import ottla.protocol.transaction_records.codec as transaction_codec
from ottla.broker.coordinators.internal_topics import transaction_state
from ottla.broker.coordinators.markers import TransactionMarkers
from ottla.broker.coordinators.shard_runtime import RuntimeSettings, RuntimeState, ShardRuntime
from ottla.broker.coordinators.shard_runtimes import ShardRuntimes
from ottla.broker.hosted_partition import HostedPartition
from ottla.broker.lazy import Lazy
from ottla.broker.promise import Promise, completed
from ottla.broker.services import BrokerServices
from ottla.core.controller.changes import MetadataChanges
from ottla.core.controller.image import TRANSACTION_VERSION, MetadataImage
from ottla.core.coordination import Command, ResponseT
from ottla.core.transactions.commands import (
    EndTransaction,
    InitProducerId,
    ListedTransaction,
    ListTransactions,
    ProducerIdAndEpoch,
    WriteMarkers,
)
from ottla.core.transactions.settings import TransactionSettings
from ottla.core.transactions.shard import TransactionShard
from ottla.model.config import BrokerConfig
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition

if TYPE_CHECKING:
    from ottla.broker.coordinators.remote_markers import RemoteMarkers
    from ottla.broker.coordinators.remote_verification import RemoteVerification


class TransactionCoordinator:
    def __init__(self, services: BrokerServices) -> None:
        self._services = services
        self.runtimes: ShardRuntimes[TransactionShard] = ShardRuntimes(
            services, transaction_state(services.config), self._new_runtime
        )
        self._settings = TransactionSettings()
        self._remote_markers = Lazy(lambda: _new_remote_markers(services))
        self.remote_verification = Lazy(lambda: _new_remote_verification(services))
        self.reconfigure()

    # -- requests

    def submit(self, transactional_id: str, command: Command[ResponseT]) -> "Promise[ResponseT | KafkaError]":
        """Submits a command to the id's shard. Never raises: if it is rejected, the response is a KafkaError."""
        runtime = self.runtimes.for_key(transactional_id)
        if runtime is None and not transactional_id:
            return completed(
                KafkaError(ErrorCode.invalid_request, "the transactional id is empty: set transactional.id")
            )
        if runtime is None:
            return completed(
                KafkaError(
                    ErrorCode.not_coordinator,
                    f"broker {self._services.config.node_id} does not coordinate the transactional id "
                    f"{transactional_id!r}",
                )
            )
        return runtime.submit(command)

    def submit_with_producer_id(
        self, command: InitProducerId | EndTransaction
    ) -> Promise[ProducerIdAndEpoch | KafkaError]:
        """Submits a command that may need a new producer id. The controller is asked for one only if it does."""
        runtime = self.runtimes.for_key(command.transactional_id)
        if runtime is None:
            return self.submit(command.transactional_id, command)
        if runtime.state is not RuntimeState.ACTIVE or not runtime.shard.needs_producer_id(command):
            return runtime.submit(command)

        async def run() -> KafkaError | Promise[ProducerIdAndEpoch | KafkaError]:
            try:
                producer_id = await self._services.producer_ids.next()
            except KafkaError as error:
                return error
            return self.submit(command.transactional_id, replace(command, new_producer_id=producer_id))

        return self._services.tasks.run(run())

    def has_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
    ) -> bool:
        """Whether it is known without a command that all `partitions` are in the producer's ongoing transaction."""
        runtime = self.runtimes.for_key(transactional_id)
        return (
            runtime is not None
            and runtime.can_be_read
            and runtime.shard.has_partitions(transactional_id, producer_id, producer_epoch, partitions)
        )

    def list_transactions(
        self, command: ListTransactions
    ) -> Promise[tuple[ListedTransaction, ...] | KafkaError]:
        """The ids of all shards here; KafkaError if one is still loading, as the list would be incomplete."""
        return self.runtimes.submit_to_all(command)

    async def find_coordinator(self, transactional_id: str) -> int | KafkaError:
        """The node that coordinates the transactional id. Creates `__transaction_state` if it does not exist."""
        return await self.runtimes.find_coordinator(transactional_id)

    # -- configs and metadata

    def reconfigure(self) -> None:
        """Configs of the broker or features of the cluster have changed."""
        level = self._services.metadata.image.features.get(TRANSACTION_VERSION, 0)
        self._settings = transaction_settings(self._services.config, level)
        for runtime in self.runtimes:
            runtime.shard.settings = self._settings

    def image_changed(self, changes: MetadataChanges, image: MetadataImage) -> None:
        """Starts the shards whose partitions this broker leads now.

        The host and the groups have applied the image before: a shard may have markers to write to their partitions.
        """
        if changes.features:
            self.reconfigure()
        if changes.created or changes.deleted or changes.changed or changes.brokers:
            self.runtimes.apply(image)

    def _new_runtime(self, hosted: HostedPartition) -> ShardRuntime[TransactionShard]:
        services = self._services

        def perform(effect: WriteMarkers) -> None:
            TransactionMarkers(services, runtime, effect, self._remote_markers).write(effect.partitions)

        runtime = ShardRuntime(
            hosted,
            lambda: TransactionShard(self._settings),
            transaction_codec,
            services.env,
            services.delayed_operations,
            services.tasks.start,
            RuntimeSettings(
                commit_timeout_ms=services.config.get_int("request.timeout.ms"),
                load_buffer_bytes=services.config.get_int("transaction.state.log.load.buffer.size"),
            ),
            perform=perform,
        )
        return runtime


# Imported with the first transaction that spans brokers: a single node does not need them.


def _new_remote_markers(services: BrokerServices) -> "RemoteMarkers":
    from ottla.broker.coordinators.remote_markers import RemoteMarkers

    return RemoteMarkers(services)


def _new_remote_verification(services: BrokerServices) -> "RemoteVerification":
    from ottla.broker.coordinators.remote_verification import RemoteVerification

    return RemoteVerification(services)


def transaction_settings(config: BrokerConfig, transaction_version: int) -> TransactionSettings:
    return TransactionSettings(
        max_timeout_ms=config.get_int("transaction.max.timeout.ms"),
        transactional_id_expiration_ms=config.get_int("transactional.id.expiration.ms"),
        remove_expired_interval_ms=config.get_int(
            "transaction.remove.expired.transaction.cleanup.interval.ms"
        ),
        two_phase_commit_enabled=config.get_bool("transaction.two.phase.commit.enable"),
        transaction_version=transaction_version,
    )
