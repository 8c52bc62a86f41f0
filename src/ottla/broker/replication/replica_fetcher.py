"""Copies partitions from one other broker, which leads them, with Kafka's own fetch protocol.

One request is in flight at a time. It asks for all partitions of the fetch session, and its response has those that
have news. Batches are written to the log as they come: only their headers are read.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from ottla.broker.background_tasks import BackgroundTasks
from ottla.broker.hosted_partition import HostedPartition
from ottla.broker.partition_flush import flush_partition
from ottla.broker.partition_truncation import start_partition_again, truncate_partition
from ottla.core.partition.follower import PartitionFollower
from ottla.core.partition.truncation import truncation_offset
from ottla.core.replica_fetch_session import ReplicaFetchSession, ReplicaKey
from ottla.core.replication_throttle import ReplicationThrottle
from ottla.env import Env
from ottla.model.config import BrokerConfig
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NO_LEADER_EPOCH
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.fetch_codec import FetchPartition, FetchPartitionResponse, FetchRequest
from ottla.rpc.fetch import decode_fetch_response, encode_fetch_request

if TYPE_CHECKING:
    from ottla.rpc.node_connections import NodeConnections

logger = logging.getLogger("ottla.replication")

# Topic ids, which this fetcher needs, began with v13; the epoch of the replica's broker with v15 (KIP-903).
_MIN_VERSION = 15
_READ_UNCOMMITTED = 0
# A request that waits at the leader does not know partitions that were added meanwhile. After an addition it waits
# half as long as no other one has come, so that the first records of a new topic are not held up by much, and the
# leader is not asked hundreds of times after each change.
_SHORT_WAIT_MS = 20


class FetcherSettings(NamedTuple):
    """Kafka's `replica.fetch.*` configs."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partition_max_bytes: int
    backoff_s: float
    timeout_s: float

    @classmethod
    def from_config(cls, config: BrokerConfig) -> "FetcherSettings":
        return cls(
            config.get_int("replica.fetch.wait.max.ms"),
            config.get_int("replica.fetch.min.bytes"),
            config.get_int("replica.fetch.response.max.bytes"),
            config.get_int("replica.fetch.max.bytes"),
            config.get_int("replica.fetch.backoff.ms") / 1000,
            config.get_int("replica.socket.timeout.ms") / 1000,
        )


class _Replica(NamedTuple):
    """A partition as it is followed in one leader epoch."""

    hosted: HostedPartition
    follower: PartitionFollower

    @property
    def key(self) -> ReplicaKey:
        return self.hosted.topic_id, self.hosted.topic_partition.partition

    @property
    def is_current(self) -> bool:
        hosted = self.hosted
        return hosted.role is self.follower and not hosted.is_closed and hosted.failure is None


class _Asked(NamedTuple):
    """What a fetch asks for one partition. Its response is for this replica, and continues its log at this offset."""

    replica: _Replica
    offset: int


class ReplicaFetcher:
    """`connections` reaches the brokers by id; `broker_epoch` returns the epoch of this broker's registration."""

    def __init__(
        self,
        env: Env,
        connections: "NodeConnections",
        settings: FetcherSettings,
        throttle: ReplicationThrottle,
        *,
        local_id: int,
        source_id: int,
        broker_epoch: Callable[[], int],
    ) -> None:
        self._env = env
        self._connections = connections
        self._settings = settings
        self._throttle = throttle
        self._local_id = local_id
        self._source_id = source_id
        self._broker_epoch = broker_epoch
        self._session = ReplicaFetchSession()
        self._replicas: dict[ReplicaKey, _Replica] = {}
        # As the leader knows them from the requests so far, and those that come with the next request.
        self._asked: dict[ReplicaKey, _Asked] = {}
        self._unsent: dict[ReplicaKey, _Asked] = {}
        self._delayed: dict[ReplicaKey, asyncio.TimerHandle] = {}
        self._last_added_s = 0.0
        self._has_work = asyncio.Event()
        self._flushes = BackgroundTasks()
        self._failures = 0
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"replica fetcher {source_id}")

    def __len__(self) -> int:
        return len(self._replicas)

    def add(self, hosted: HostedPartition, follower: PartitionFollower) -> None:
        replica = _Replica(hosted, follower)
        self._forget_delay(replica.key)
        self._replicas[replica.key] = replica
        self._last_added_s = asyncio.get_running_loop().time()
        self._fetch_next(replica)

    def remove(self, topic_id: UUID, index: int) -> None:
        key = (topic_id, index)
        self._forget_delay(key)
        if self._replicas.pop(key, None) is not None:
            self._session.remove(topic_id, index)
            self._asked.pop(key, None)
            self._unsent.pop(key, None)

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._flushes.close()
        for timer in self._delayed.values():
            timer.cancel()

    # -- the loop

    async def _run(self) -> None:
        while True:
            await self._has_work.wait()
            if not len(self._session):
                self._has_work.clear()
                continue
            try:
                await self._fetch()
                self._failures = 0
            except Exception as error:
                self._session.on_failure()
                self._failures += 1
                if self._failures == 1:
                    is_expected = isinstance(error, OSError | KafkaError)
                    logger.warning(
                        "broker %d cannot fetch from broker %d, and retries: %s",
                        self._local_id, self._source_id, error, exc_info=None if is_expected else error,
                    )  # fmt: skip
                await asyncio.sleep(self._settings.backoff_s)

    async def _fetch(self) -> None:
        settings = self._settings
        version = await self._connections.latest_version(
            self._source_id, ApiKey.FETCH, settings.timeout_s, at_least=_MIN_VERSION
        )
        if self._throttle.is_active and not self._leave_out_throttled():
            return
        fetch = self._session.next_fetch()
        self._asked.update(self._unsent)
        self._unsent.clear()
        request = FetchRequest(
            self._local_id,
            self._broker_epoch(),
            self._wait_ms(),
            settings.min_bytes,
            settings.max_bytes,
            _READ_UNCOMMITTED,
            fetch.session_id,
            fetch.session_epoch,
            fetch.topics,
            fetch.forgotten,
        )
        body = await self._connections.call_body(
            self._source_id, ApiKey.FETCH, version, encode_fetch_request(request, version), settings.timeout_s
        )
        response = decode_fetch_response(body, version)
        error = ErrorCode(response.error_code)
        if not self._session.on_response(response.session_id, error):
            logger.info("broker %d opens a new fetch session with broker %d: %s",
                        self._local_id, self._source_id, error.name)  # fmt: skip
            return
        for topic in response.topics:
            if topic.topic_id is not None:
                for partition in topic.partitions:
                    await self._handle(topic.topic_id, partition)

    async def _handle(self, topic_id: UUID, response: FetchPartitionResponse) -> None:
        """Skips a response that another replica has asked for: the role has changed while it was on its way."""
        key = (topic_id, response.index)
        replica = self._replicas.get(key)
        if replica is None:
            return
        if replica.is_current and self._asked.get(key) == _Asked(replica, replica.hosted.log.log_end_offset):
            await self._apply(replica, response)
            return
        # The leader believes that this follower knows its high watermark now: a full fetch makes it send that again.
        self._session.on_failure()
        if key not in self._delayed:
            self._fetch_next(replica)

    def _wait_ms(self) -> int:
        quiet_ms = int((asyncio.get_running_loop().time() - self._last_added_s) * 1000)
        return min(max(quiet_ms // 2, _SHORT_WAIT_MS), self._settings.max_wait_ms)

    # -- one partition

    async def _apply(self, replica: _Replica, response: FetchPartitionResponse) -> None:
        try:
            if response.error_code:
                await self._handle_error(replica, ErrorCode(response.error_code))
            elif response.diverging_epoch is not None:
                await self._truncate(replica, *response.diverging_epoch)
            else:
                await self._append(replica, response)
        except KafkaError as error:
            logger.error("%s cannot be copied from broker %d: %s",
                         replica.hosted.topic_partition, self._source_id, error.message)  # fmt: skip
            self._delay(replica)
            return
        except OSError:
            raise  # the leader cannot be reached
        except Exception:
            # A bug, or a damaged file of one partition, must not keep the others from being copied.
            logger.exception("%s cannot be copied from broker %d",
                             replica.hosted.topic_partition, self._source_id)  # fmt: skip
            self._delay(replica)
            return
        if replica.key not in self._delayed and self._replicas.get(replica.key) is replica:
            self._fetch_next(replica)

    async def _append(self, replica: _Replica, response: FetchPartitionResponse) -> None:
        """Returns when the records are as durable as `flush.messages` asks: the next fetch acknowledges them."""
        hosted = replica.hosted
        records = response.records
        if records:
            assert isinstance(records, bytes | bytearray | memoryview)
            if self._throttle.is_active and self._throttle.covers(hosted.topic_partition):
                self._throttle.record(len(records), self._env.clock.monotonic_ms())
            restart_offset = replica.follower.restart_offset(memoryview(records))
            if restart_offset is not None:
                logger.info("%s starts again at offset %d: its leader's log starts inside the batch there",
                            hosted.topic_partition, restart_offset)  # fmt: skip
                await start_partition_again(self._env, hosted, replica.follower, restart_offset)
                if not replica.is_current:
                    return
            hosted.append_from_leader(replica.follower, memoryview(records), self._env.clock.now_ms())
            if hosted.needs_flush:
                await flush_partition(self._env, hosted)
                if not replica.is_current:
                    return
        hosted.fetched_from_leader(response.high_watermark, response.log_start_offset)

    async def _truncate(self, replica: _Replica, epoch: int, end_offset: int) -> None:
        hosted, log = replica.hosted, replica.hosted.log
        offset = truncation_offset(log.epochs, log.log_end_offset, epoch, end_offset)
        logger.info(
            "%s is truncated from offset %d to %d: it has diverged from its leader, broker %d, after epoch %d",
            hosted.topic_partition, log.log_end_offset, offset, self._source_id, epoch,
        )  # fmt: skip
        await truncate_partition(self._env, hosted, replica.follower, offset)

    async def _handle_error(self, replica: _Replica, error: ErrorCode) -> None:
        if error is ErrorCode.offset_out_of_range:
            await self._catch_up_from_start(replica)
            return
        # The leader or its epoch has changed, or the leader does not know of it yet. New metadata will say so.
        level = logging.DEBUG if error in _TRANSIENT_ERRORS else logging.WARNING
        logger.log(
            level, "%s: broker %d answers %s", replica.hosted.topic_partition, self._source_id, error.name
        )
        self._delay(replica)

    async def _catch_up_from_start(self, replica: _Replica) -> None:
        """The leader no longer has the next offset, or has lost it in an unclean election."""
        from ottla.broker.replication.leader_offsets import fetch_leader_offsets

        hosted, log = replica.hosted, replica.hosted.log
        start, end = await fetch_leader_offsets(
            self._connections,
            self._source_id,
            hosted.topic_partition,
            self._local_id,
            replica.follower.leader_epoch,
            self._settings.timeout_s,
        )
        if not replica.is_current:
            return
        if end < log.log_end_offset:
            logger.warning("%s is truncated from offset %d to %d, the end of its leader's log",
                           hosted.topic_partition, log.log_end_offset, end)  # fmt: skip
            await truncate_partition(self._env, hosted, replica.follower, end)
        elif start > log.log_end_offset:
            logger.info("%s starts again at offset %d, the start of its leader's log",
                        hosted.topic_partition, start)  # fmt: skip
            await start_partition_again(self._env, hosted, replica.follower, start)

    # -- what to fetch

    def _fetch_next(self, replica: _Replica) -> None:
        """Asks for the records after the end of the log, with the epoch of the last one (KIP-595).

        That acknowledges all records before them, so if they wait for a flush by `flush.messages`, the flush comes
        first: the role may have changed while the fetcher waited for it.
        """
        if not replica.is_current:
            return
        if replica.hosted.needs_flush:
            self._session.remove(*replica.key)
            self._flushes.start(self._flush_and_fetch(replica))
            return
        hosted, log = replica.hosted, replica.hosted.log
        latest_epoch = log.epochs.latest
        self._unsent[replica.key] = _Asked(replica, log.log_end_offset)
        self._session.put(
            hosted.topic_id,
            FetchPartition(
                hosted.topic_partition.partition,
                replica.follower.leader_epoch,
                log.log_end_offset,
                NO_LEADER_EPOCH if latest_epoch is None else latest_epoch,
                log.log_start_offset,
                self._settings.partition_max_bytes,
            ),
        )
        self._has_work.set()

    async def _flush_and_fetch(self, replica: _Replica) -> None:
        await flush_partition(self._env, replica.hosted)
        if self._replicas.get(replica.key) is replica and replica.key not in self._delayed:
            self._fetch_next(replica)

    def _leave_out_throttled(self) -> bool:
        """While the quota is exceeded, leaves out throttled partitions that lag. Returns whether any others remain."""
        wait_s = self._throttle.wait_ms(self._env.clock.monotonic_ms()) / 1000
        if wait_s:
            for key, replica in self._replicas.items():
                if (
                    key in self._session
                    and not replica.follower.is_caught_up
                    and self._throttle.covers(replica.hosted.topic_partition)
                ):
                    # Not for the whole time: the throttle may be changed meanwhile.
                    self._delay(replica, min(wait_s, self._settings.backoff_s))
        return len(self._session) > 0

    def _delay(self, replica: _Replica, delay_s: float | None = None) -> None:
        """Leaves the partition out for a while."""
        key = replica.key
        self._forget_delay(key)
        self._session.remove(*key)
        loop = asyncio.get_running_loop()
        delay_s = self._settings.backoff_s if delay_s is None else delay_s
        self._delayed[key] = loop.call_later(delay_s, self._retry, replica)

    def _retry(self, replica: _Replica) -> None:
        self._delayed.pop(replica.key, None)
        if self._replicas.get(replica.key) is replica:
            self._fetch_next(replica)

    def _forget_delay(self, key: ReplicaKey) -> None:
        timer = self._delayed.pop(key, None)
        if timer is not None:
            timer.cancel()


_TRANSIENT_ERRORS = frozenset(
    {
        ErrorCode.not_leader_or_follower,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.unknown_topic_id,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.inconsistent_topic_id,
    }
)
