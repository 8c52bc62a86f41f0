"""Replication throttles (KIP-73): which replicas are throttled, and whether their quota is exceeded.

A broker has two throttles: one for the bytes that it sends as a leader, one for those that it fetches as a follower.
"""

from collections import deque
from collections.abc import Sequence

from ottla.model.config.definition import LONG_MAX
from ottla.model.ids import TopicPartition

UNLIMITED = LONG_MAX
ALL_REPLICAS = "*"


class ReplicationQuota:
    """Bytes per second over a sliding window, measured as Kafka does (SimpleRate).

    The window has `samples_max` samples of `sample_ms`. While it fills, the rate is that since its first sample, but
    at least one sample long: a burst of that length is not held against the time before it.
    """

    def __init__(self, samples_max: int, sample_ms: int) -> None:
        self.bytes_per_second = UNLIMITED
        self._sample_ms = sample_ms
        self._window_ms = samples_max * sample_ms
        self._samples: deque[list[int]] = deque()  # start, bytes; oldest first
        self._bytes = 0

    def record(self, size: int, now_ms: int) -> None:
        self._forget_old(now_ms)
        if not self._samples or now_ms - self._samples[-1][0] >= self._sample_ms:
            self._samples.append([now_ms, 0])
        self._samples[-1][1] += size
        self._bytes += size

    def is_exceeded(self, now_ms: int) -> bool:
        return self.wait_ms(now_ms) > 0

    def wait_ms(self, now_ms: int) -> int:
        """How long until the quota is not exceeded any more, if nothing is recorded meanwhile; 0 if it is not now."""
        self._forget_old(now_ms)
        remaining, begins_ms = self._bytes, now_ms
        for start_ms, size in self._samples:
            if remaining * 1000 <= self.bytes_per_second * self._sample_ms:
                break
            expires_ms = start_ms + self._window_ms
            if self.bytes_per_second > 0:
                allowed_ms = start_ms - (-remaining * 1000 // self.bytes_per_second)  # rounded up
                if allowed_ms <= expires_ms:
                    return max(allowed_ms, begins_ms) - now_ms
            remaining, begins_ms = remaining - size, expires_ms
        return begins_ms - now_ms

    def _forget_old(self, now_ms: int) -> None:
        samples = self._samples
        while samples and now_ms - samples[0][0] >= self._window_ms:
            self._bytes -= samples.popleft()[1]


class ReplicationThrottle:
    """The replicas of this broker that are throttled, and their common quota.

    `is_active` is False while there is no limit or no such replica: nothing else needs to be asked then.
    """

    def __init__(self, node_id: int, samples_max: int, sample_ms: int) -> None:
        self.is_active = False
        self._node_id = str(node_id)
        self._quota = ReplicationQuota(samples_max, sample_ms)
        self._partitions: dict[str, frozenset[int] | None] = {}  # by topic; None: all partitions

    def set_rate(self, bytes_per_second: int) -> None:
        self._quota.bytes_per_second = bytes_per_second
        self._activate()

    def set_replicas(self, topic: str, replicas: Sequence[str]) -> None:
        """`replicas` is a value of `leader.replication.throttled.replicas` or its counterpart for followers."""
        pairs = [replica.partition(":") for replica in replicas]
        partitions = frozenset(
            int(index) for index, _, node_id in pairs if node_id == self._node_id and index.isdecimal()
        )
        if ALL_REPLICAS in replicas:
            self._partitions[topic] = None
        elif partitions:
            self._partitions[topic] = partitions
        else:
            self._partitions.pop(topic, None)
        self._activate()

    def _activate(self) -> None:
        self.is_active = bool(self._partitions) and self._quota.bytes_per_second < UNLIMITED

    def covers(self, topic_partition: TopicPartition) -> bool:
        """Whether this broker's replica of the partition is throttled."""
        topic, partition = topic_partition
        partitions = self._partitions.get(topic, frozenset())
        return partitions is None or partition in partitions

    def record(self, size: int, now_ms: int) -> None:
        """Counts bytes of replicas that it covers."""
        self._quota.record(size, now_ms)

    def wait_ms(self, now_ms: int) -> int:
        """How long its replicas must wait; 0 if they need not."""
        return self._quota.wait_ms(now_ms) if self.is_active else 0
