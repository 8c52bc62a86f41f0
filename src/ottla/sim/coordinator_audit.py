"""Checks the coordinators of a simulated broker: every shard is consistent and equals a replay of its log.

Both also hold while records wait for their replicas: the shard of a leader has what its log has, committed or not.
"""

from typing import Any

import ottla.protocol.group_records.codec as group_codec
import ottla.protocol.transaction_records.codec as transaction_codec
from ottla.broker.coordinators.shard_loader import replay_batch
from ottla.broker.coordinators.shard_runtime import RuntimeState, ShardRuntime
from ottla.broker.node import Broker
from ottla.core.groups.shard import GroupShard
from ottla.core.transactions.shard import TransactionShard
from ottla.records.records import read_batches
from ottla.sim.history import Violation

COORDINATOR = "coordinator"
_READ_BYTES = 1 << 20


def validate_shards(broker: Broker) -> None:
    for runtime in _active(broker):
        try:
            runtime.shard.validate()
        except AssertionError as error:
            raise Violation(f"{COORDINATOR}: {runtime.hosted.topic_partition}: {error}") from error


def check_shards_against_logs(broker: Broker) -> None:
    """A shard rebuilt from the log, as after a restart, must equal the one that wrote it."""
    for runtime in _active(broker):
        current, rebuilt = runtime.shard.durable_state(), _rebuild(runtime).durable_state()
        if current != rebuilt:
            raise Violation(
                f"{COORDINATOR}: {runtime.hosted.topic_partition} has {current}, but its log gives {rebuilt}"
            )


def _active(broker: Broker) -> list[ShardRuntime[Any]]:
    """A runtime that has lost its leadership is closed soon: its log may have been truncated meanwhile."""
    groups, transactions = broker.services.groups.created, broker.services.transactions.created
    runtimes: list[ShardRuntime[Any]] = []
    if groups is not None:
        runtimes += groups.runtimes
    if transactions is not None:
        runtimes += transactions.runtimes
    return [
        runtime
        for runtime in runtimes
        if runtime.state is RuntimeState.ACTIVE and runtime.has_leadership and runtime.hosted.failure is None
    ]


def _rebuild(runtime: ShardRuntime[Any]) -> GroupShard | TransactionShard:
    live = runtime.shard
    shard: GroupShard | TransactionShard
    codec: Any
    if isinstance(live, GroupShard):
        shard, codec = GroupShard(live.state.settings, live.state.topics), group_codec
    else:
        shard, codec = TransactionShard(live.settings), transaction_codec
    log = runtime.hosted.log
    offset, end_offset = log.log_start_offset, log.log_end_offset
    while offset < end_offset:
        found = log.read(offset, _READ_BYTES, end_offset=end_offset, at_least_one=True)
        for batch in read_batches(found.region.read()):
            replay_batch(batch, shard, codec, runtime.hosted)
            offset = batch.header.last_offset + 1
    return shard
