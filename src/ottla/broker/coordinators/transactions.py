"""The transaction coordinator of this broker: a shard for each partition of `__transaction_state` that it leads."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import ottla.protocol.transaction_records.codec as transaction_codec
from ottla.broker.coordinators.internal_topics import transaction_state
from ottla.broker.coordinators.markers import MarkerWriter
from ottla.broker.coordinators.shard import CoordinatorShard, ShardSettings, ShardState
from ottla.broker.coordinators.shard_set import ShardSet
from ottla.broker.hosted_partition import HostedPartition
from ottla.broker.pending import Pending, completed
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
    from ottla.broker.node import Broker


class TransactionCoordinator:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._markers = MarkerWriter(broker)
        self.shards: ShardSet[TransactionShard] = ShardSet(
            broker, transaction_state(broker.config), self._new_shard
        )
        self._settings = TransactionSettings()
        self.reconfigure()

    # -- requests

    def submit(self, transactional_id: str, command: Command[ResponseT]) -> "Pending[ResponseT | KafkaError]":
        """Has the shard of the id decide. Never raises: a refusal is a KafkaError in the place of the response."""
        shard = self.shards.shard_of(transactional_id)
        if shard is None and not transactional_id:
            return completed(KafkaError(ErrorCode.invalid_request, "the transactional id is empty: name one"))
        if shard is None:
            return completed(
                KafkaError(
                    ErrorCode.not_coordinator,
                    f"broker {self._broker.config.node_id} does not coordinate the transactional id "
                    f"{transactional_id!r}",
                )
            )
        return shard.submit(command)

    def submit_with_producer_id(
        self, command: InitProducerId | EndTransaction
    ) -> Pending[ProducerIdAndEpoch | KafkaError]:
        """Has the shard decide what may need a new producer id, which the controller is asked for only then."""
        shard = self.shards.shard_of(command.transactional_id)
        if shard is None:
            return self.submit(command.transactional_id, command)
        if shard.state is not ShardState.ACTIVE or not shard.machine.needs_producer_id(command):
            return shard.submit(command)

        async def run() -> KafkaError | Pending[ProducerIdAndEpoch | KafkaError]:
            try:
                producer_id = await self._broker.producer_ids.next()
            except KafkaError as error:
                return error
            return self.submit(command.transactional_id, replace(command, new_producer_id=producer_id))

        return self._broker.answer_later(run())

    def has_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
    ) -> bool:
        """Whether all of them are in the producer's ongoing transaction, and that can be said at once. Else ask."""
        shard = self.shards.shard_of(transactional_id)
        return (
            shard is not None
            and shard.can_be_read
            and shard.machine.has_partitions(transactional_id, producer_id, producer_epoch, partitions)
        )

    def list_transactions(
        self, command: ListTransactions
    ) -> Pending[tuple[ListedTransaction, ...] | KafkaError]:
        """The ids of all shards here; KafkaError where one is still loading: the list would not be whole."""
        return self.shards.submit_to_all(command)

    async def find(self, transactional_id: str) -> int | KafkaError:
        """The id of the node that coordinates the id. Makes `__transaction_state` where it is not there."""
        return await self.shards.find(transactional_id)

    # -- what happens around

    def reconfigure(self) -> None:
        """Configs of the broker or features of the cluster have changed."""
        level = self._broker.image.features.get(TRANSACTION_VERSION, 0)
        self._settings = transaction_settings(self._broker.config, level)
        for shard in self.shards:
            shard.machine.settings = self._settings

    def image_changed(self, changes: MetadataChanges, image: MetadataImage) -> None:
        """After the partitions are open, and those of the groups taken over: a shard may have markers to write."""
        if changes.features:
            self.reconfigure()
        if changes.created or changes.deleted or changes.changed or changes.brokers:
            self.shards.follow(image)

    def _new_shard(self, hosted: HostedPartition) -> CoordinatorShard[TransactionShard]:
        broker = self._broker

        def perform(effect: WriteMarkers) -> None:
            self._markers.write(shard, effect)

        shard = CoordinatorShard(
            hosted,
            lambda: TransactionShard(self._settings),
            transaction_codec,
            broker.env,
            broker.waiting_room,
            broker.spawn,
            ShardSettings(
                commit_timeout_ms=broker.config.get_int("request.timeout.ms"),
                load_buffer_bytes=broker.config.get_int("transaction.state.log.load.buffer.size"),
            ),
            perform=perform,
        )
        return shard


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
