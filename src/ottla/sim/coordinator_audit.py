"""Looks into the coordinators of a simulated broker: no shard contradicts itself, or differs from what its log says."""

from typing import Any

import ottla.protocol.group_records.codec as group_codec
import ottla.protocol.transaction_records.codec as transaction_codec
from ottla.broker.coordinators.loading import replay_batch
from ottla.broker.coordinators.shard import CoordinatorShard, ShardState
from ottla.broker.node import Broker
from ottla.core.groups.shard import GroupShard
from ottla.core.transactions.shard import TransactionShard
from ottla.records.records import read_batches
from ottla.sim.history import Violation

_READ_BYTES = 1 << 20


def validate_shards(broker: Broker) -> None:
    for shard in _active(broker):
        shard.machine.validate()


def check_shards_against_their_logs(broker: Broker) -> None:
    """A machine that is rebuilt from the log, as after a restart, must equal the one that wrote it."""
    for shard in _active(broker):
        known, rebuilt = shard.machine.durable_state(), _rebuilt(shard).durable_state()
        if known != rebuilt:
            raise Violation(f"{shard.hosted.topic_partition} knows {known}, and its log says {rebuilt}")


def _active(broker: Broker) -> list[CoordinatorShard[Any]]:
    shards: tuple[CoordinatorShard[Any], ...] = (*broker.groups.shards, *broker.transactions.shards)
    return [shard for shard in shards if shard.state is ShardState.ACTIVE and shard.hosted.failure is None]


def _rebuilt(shard: CoordinatorShard[Any]) -> GroupShard | TransactionShard:
    live = shard.machine
    machine: GroupShard | TransactionShard
    codec: Any
    if isinstance(live, GroupShard):
        machine, codec = GroupShard(live.state.settings, live.state.topics), group_codec
    else:
        machine, codec = TransactionShard(live.settings), transaction_codec
    log = shard.hosted.log
    offset, end_offset = log.log_start_offset, log.log_end_offset
    while offset < end_offset:
        found = log.read(offset, _READ_BYTES, end_offset=end_offset, at_least_one=True)
        for batch in read_batches(found.region.read()):
            replay_batch(batch, machine, codec, shard.hosted)
            offset = batch.header.last_offset + 1
    return machine
