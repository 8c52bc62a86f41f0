"""What a cluster must drop after a time: records, offsets, transactional ids and producer ids, and not too early.

Clocks may be wrong by up to 20 minutes for a while, so each limit has that much slack.
"""

import asyncio
from typing import ClassVar
from uuid import UUID

from ottla.model.errors import ErrorCode
from ottla.sim.client import SimClient
from ottla.sim.cluster import Cluster
from ottla.sim.cluster_client import ClusterClient, new_client
from ottla.sim.cluster_programs import Committer
from ottla.sim.group_client import GroupClient, Topic
from ottla.sim.history import History, PartitionHistory, Value, Violation
from ottla.sim.partition_clients import (
    RETRY_PAUSE_S,
    IdempotentProducer,
    create_topic_with_retries,
    records_of,
)
from ottla.sim.transaction_client import list_transactions

_MINUTE_MS = 60_000
_RETENTION_MIN, _OFFSETS_MIN, _TRANSACTIONAL_ID_MIN, _PRODUCER_ID_MIN = 60, 120, 120, 60
_SLACK_MIN = 20  # of the clocks
# Shorter than the last part of a calm stretch: a node that starts, or becomes the coordinator, begins to count again.
_CHECK_MIN = 5
# Nothing expires while nodes fail, and segments roll late.
_LATE_MIN = 60
_BATCHES = 10
_HOST = "client-1"
_CLIENT_TIMEOUT_S = 20.0


class _AgingHistory(PartitionHistory):
    """The acknowledged records, with the time of their acknowledgement, until they may be gone."""

    def __init__(self) -> None:
        super().__init__()
        self.times_ms: dict[int, tuple[Value, int]] = {}

    def acknowledge(self, value: Value, offset: int) -> None:
        self.times_ms[offset] = value, int(asyncio.get_running_loop().time() * 1000)


class AgingState:
    CONFIG: ClassVar[dict[str, str]] = {
        "offsets.retention.minutes": str(_OFFSETS_MIN),
        "transactional.id.expiration.ms": str(_TRANSACTIONAL_ID_MIN * _MINUTE_MS),
        "transaction.remove.expired.transaction.cleanup.interval.ms": str(_CHECK_MIN * _MINUTE_MS),
        "offsets.retention.check.interval.ms": str(_CHECK_MIN * _MINUTE_MS),
        "producer.id.expiration.check.interval.ms": str(_CHECK_MIN * _MINUTE_MS),
        "producer.id.expiration.ms": str(_PRODUCER_ID_MIN * _MINUTE_MS),
    }

    def __init__(self, cluster: Cluster, client: SimClient) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._client = client
        self._history = History(_AgingHistory)
        self._topic = Topic("aging", UUID(int=0), 1)
        self._rounds_ms: dict[int, int] = {}  # when each round ended
        self._standing: Committer | None = None

    async def start(self) -> None:
        configs = {"retention.ms": str(_RETENTION_MIN * _MINUTE_MS), "segment.ms": str(10 * _MINUTE_MS)}
        topic_id = await create_topic_with_retries(self._client, "aging", 1, configs, 3)
        self._topic = Topic("aging", topic_id, 1)
        self._standing = self._committer("aging-standing")

    async def use(self, number: int) -> None:
        """In each round: writes records, commits offsets in a group of this round and in one of all rounds."""
        producer = IdempotentProducer(
            new_client(self._world, _HOST, _HOST, _CLIENT_TIMEOUT_S), self._world.derive(), self._world.clock.now_ms,
            self._history, f"aging-{number}", self._topic.topic_id, 0,
        )  # fmt: skip
        assert self._standing is not None
        await asyncio.gather(
            producer.run(_BATCHES),
            self._standing.commit_next(),
            self._committer(f"aging-{number}").commit_next(),
        )
        self._rounds_ms[number] = self._now_ms()

    async def check(self) -> None:
        """After each round, without faults. Raises Violation."""
        assert self._standing is not None
        await self._standing.check()
        await self._check_records()
        for number, ended_ms in list(self._rounds_ms.items()):
            age_min = (self._now_ms() - ended_ms) / _MINUTE_MS
            await self._check_offsets(number, age_min)
            if age_min > max(_OFFSETS_MIN, _TRANSACTIONAL_ID_MIN) + _SLACK_MIN + _LATE_MIN:
                await self._check_transactional_ids(number)
                del self._rounds_ms[number]

    def _committer(self, group_id: str) -> Committer:
        client = new_client(self._world, _HOST, _HOST, _CLIENT_TIMEOUT_S, resets_on_timeout=True)
        return Committer(client, self._world.derive(), group_id, self._topic)

    def _now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    # Each kind of state

    async def _check_records(self) -> None:
        history = self._history[0]
        assert isinstance(history, _AgingHistory)
        start, found = await self._read_all(min(history.times_ms, default=0))
        for offset, (value, at_ms) in list(history.times_ms.items()):
            age_min = (self._now_ms() - at_ms) / _MINUTE_MS
            if offset < start:
                if age_min < _RETENTION_MIN - _SLACK_MIN:
                    raise Violation(
                        f"retention: {value} at offset {offset} was deleted after {age_min:.0f} minutes"
                    )
                del history.times_ms[offset]
            elif found.get(offset) != value:
                raise Violation(
                    f"{value} was acknowledged at offset {offset}, which holds {found.get(offset)}"
                )
            elif age_min > _RETENTION_MIN + _SLACK_MIN + _LATE_MIN:
                raise Violation(
                    f"retention: {value} at offset {offset} is still there after {age_min:.0f} minutes"
                )
        history.attempted.clear()

    async def _read_all(self, offset: int) -> tuple[int, dict[int, Value]]:
        """Returns the log start offset, and the records from `offset` on."""
        found: dict[int, Value] = {}
        while True:
            try:
                response = await self._client.fetch(self._topic.topic_id, 0, offset)
            except OSError:
                await asyncio.sleep(RETRY_PAUSE_S)
                continue
            if response.error_code == ErrorCode.offset_out_of_range:
                offset = max(offset, response.log_start_offset, self._log_start_offset())
            if response.error_code != ErrorCode.none:
                await asyncio.sleep(RETRY_PAUSE_S)
                continue
            records = [record for record in records_of(response) if record.offset >= offset]
            found |= {record.offset: Value.decode(record.key or b"") for record in records}
            offset = records[-1].offset + 1 if records else offset
            if offset >= response.high_watermark:
                return response.log_start_offset, found

    def _log_start_offset(self) -> int:
        replicas = self._cluster.replicas_of(self._topic.name, 0).values()
        return max((hosted.log.log_start_offset for hosted in replicas), default=0)

    def check_producers(self) -> None:
        """After a calm time: a node that starts knows the producers of its log, until the next check for expiry."""
        oldest_ms = self._world.clock.now_ms() - (_PRODUCER_ID_MIN + _SLACK_MIN + _LATE_MIN) * _MINUTE_MS
        for node_id, hosted in self._cluster.replicas_of(self._topic.name, 0).items():
            for entry in hosted.log.producers.entries():
                if entry.timestamp < oldest_ms:
                    raise Violation(f"expiry: node {node_id} still knows {entry}")

    async def _check_offsets(self, number: int, age_min: float) -> None:
        group = GroupClient(self._client, f"aging-{number}", self._topic)
        while True:
            error, found = await group.committed([0])
            if error == ErrorCode.none and found[0].error_code == ErrorCode.none:
                break
            await asyncio.sleep(RETRY_PAUSE_S)
        is_there = found[0].offset >= 0
        if not is_there and age_min < _OFFSETS_MIN - _SLACK_MIN:
            raise Violation(f"expiry: the offset of group aging-{number} is gone after {age_min:.0f} minutes")
        if is_there and age_min > _OFFSETS_MIN + _SLACK_MIN + _LATE_MIN:
            raise Violation(
                f"expiry: the offset of group aging-{number} is there after {age_min:.0f} minutes"
            )

    async def _check_transactional_ids(self, number: int) -> None:
        assert isinstance(self._client, ClusterClient)
        for address in self._cluster.bootstrap:
            while (found := await list_transactions(self._client.client_of(address))) is None:  # noqa: ASYNC110
                await asyncio.sleep(RETRY_PAUSE_S)
            late = [name for name in found if name.endswith(f"-{number}")]
            if late:
                raise Violation(f"expiry: the transactional ids {late} are still there")
