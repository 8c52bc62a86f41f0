"""What tests do with topics and groups. It goes over the wire, so it works with every cluster."""

import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.model.ids import TopicPartition

if TYPE_CHECKING:
    from ottla.admin.cluster import Cluster

_TIMEOUT_S = 30.0
_POLL_S = 0.02
Bytes = str | bytes | None


def new_topic_name() -> str:
    return f"topic-{uuid.uuid4().hex[:12]}"


class Record(NamedTuple):
    """A record as it was read. Keys and values are bytes; None is a null."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class KafkaHelpers(ABC):
    """The helpers of `Kafka` and `KafkaCluster`. They raise ClusterError if the cluster rejects a request.

    Those that wait try again until their timeout.
    """

    def __init__(self) -> None:
        self._admin: Cluster | None = None

    @property
    @abstractmethod
    def bootstrap(self) -> str: ...

    @property
    def _may_lose_responses(self) -> bool:
        """Whether nodes or faults may get between a request and its response."""
        return True

    @property
    def _cluster(self) -> "Cluster":
        from ottla.admin.cluster import Cluster

        bootstrap = self.bootstrap  # raises if the broker does not run
        if self._admin is None or self._admin.bootstrap != bootstrap:
            self._admin = Cluster(bootstrap)
        return self._admin

    def _close_clients(self) -> None:
        self._admin = None

    def create_topic(
        self,
        name: str | None = None,
        *,
        partitions: int = 1,
        replication_factor: int = -1,
        config: Mapping[str, object] | None = None,
    ) -> str:
        """Returns the name; without one, a fresh name. The replication factor is the cluster's default."""
        from ottla.admin.topics import create_topic

        name = name or new_topic_name()
        configs = {key: str(value) for key, value in (config or {}).items()}
        create_topic(
            self._cluster, name, partitions=partitions, replication_factor=replication_factor, configs=configs
        )
        return name

    def delete_topic(self, name: str) -> None:
        from ottla.admin.topics import delete_topic

        delete_topic(self._cluster, name)

    def produce(
        self,
        topic: str,
        *values: "Bytes | tuple[Bytes, Bytes]",
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> None:
        """Appends records and waits until they are acknowledged. A pair is a key and a value."""
        from ottla.admin.json_records import OutgoingRecord
        from ottla.admin.produce import RecordSender

        with RecordSender(self._cluster, topic, is_idempotent=self._may_lose_responses) as sender:
            for item in values:
                key, value = item if isinstance(item, tuple) else (None, item)
                sender.send(OutgoingRecord(_bytes(key), _bytes(value), list(headers), partition, timestamp))

    def records(self, topic: str, *, committed_only: bool = True) -> list[Record]:
        """All records of a topic, sorted by partition and offset, without those of transactions that are not committed.

        `committed_only=False` reads as a consumer with isolation.level=read_uncommitted.
        """
        return self._read(topic, committed_only, lambda found, at_end: at_end, _TIMEOUT_S)

    def wait_for(
        self, topic: str, count: int, *, timeout: float = _TIMEOUT_S, committed_only: bool = True
    ) -> list[Record]:
        """Waits until a topic has at least `count` records, and returns all that it has. Raises TimeoutError.

        The topic need not exist yet.
        """
        return self._read(
            topic, committed_only, lambda found, at_end: at_end and len(found) >= count, timeout, count
        )

    def _read(
        self,
        topic: str,
        committed_only: bool,
        is_enough: "Callable[[list[Record], bool], bool]",
        timeout_s: float,
        count: int | None = None,
    ) -> list[Record]:
        from ottla.admin.cluster import ClusterError
        from ottla.testing.reading import read_topic

        deadline = time.monotonic() + timeout_s
        found: list[Record] = []
        is_complete, reason = False, ""
        while not is_complete:
            left_s = max(deadline - time.monotonic(), 0)
            try:
                found, is_complete = read_topic(self._cluster, topic, committed_only, is_enough, left_s)
                reason = ""
            except ClusterError as error:
                if count is None:
                    raise
                reason = _last_error(error)
            if not is_complete and time.monotonic() > deadline:
                expected = "its end was not reached" if count is None else f"not {count}"
                raise TimeoutError(
                    f"topic {topic} has {len(found)} records after {timeout_s:g} s, {expected}. "
                    f"The last: {found[-1] if found else None}{reason}"
                )
            if reason:
                time.sleep(_POLL_S)
        return sorted(found, key=lambda record: (record.partition, record.offset))

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """The committed offsets of a group; empty if there are none."""
        from ottla.admin.group_offsets import committed_offsets

        return committed_offsets(self._cluster, group)

    def lag(self, group: str) -> int:
        """How many offsets the group is behind the ends of the partitions that it has committed or that it owns.

        A partition without a committed offset counts from its first offset.
        """
        from ottla.admin.group_offsets import offsets_at
        from ottla.admin.groups import find_group, group_lag
        from ottla.admin.position import EARLIEST

        group_description = find_group(self._cluster, group)
        lines = [] if group_description is None else group_lag(self._cluster, group_description)
        uncommitted = {
            TopicPartition(line.topic, line.partition): line.log_end
            for line in lines
            if line.committed is None and line.log_end is not None
        }
        earliest = offsets_at(self._cluster, uncommitted, EARLIEST)
        return sum(line.lag or 0 for line in lines) + sum(
            end - earliest[partition] for partition, end in uncommitted.items()
        )

    def wait_until_stable(
        self, group: str, *, members: int | None = None, timeout: float = _TIMEOUT_S
    ) -> None:
        """Waits until a group is stable, with `members` members or at least one. Raises TimeoutError."""
        from ottla.admin.groups import find_group

        state = "unknown"

        def is_stable() -> bool:
            nonlocal state
            found = find_group(self._cluster, group)
            state = "unknown" if found is None else f"{found.state} with {len(found.members)} members"
            if found is None or found.state != "Stable":
                return False
            return bool(found.members) if members is None else len(found.members) == members

        expected = "" if members is None else f" with {members} members"
        _wait(
            is_stable, timeout, lambda: f"group {group} is {state} after {timeout:g} s, not Stable{expected}"
        )

    def wait_until_committed(
        self, group: str, offsets: Mapping[tuple[str, int], int], *, timeout: float = _TIMEOUT_S
    ) -> None:
        """Waits until a group has committed at least `offsets`, by topic and partition. Raises TimeoutError."""
        committed: dict[TopicPartition, int] = {}

        def is_committed() -> bool:
            committed.clear()
            committed.update(self.committed(group))
            return all(committed.get(TopicPartition(*at), -1) >= offset for at, offset in offsets.items())

        _wait(
            is_committed,
            timeout,
            lambda: f"group {group} has committed {committed} after {timeout:g} s, not {dict(offsets)}",
        )


def _wait(condition: Callable[[], bool], timeout_s: float, describe: Callable[[], str]) -> None:
    """Raises TimeoutError. An error of the cluster means "not yet": its nodes may have to learn of a change first."""
    from ottla.admin.cluster import ClusterError

    reason = ""

    def is_met() -> bool:
        nonlocal reason
        try:
            is_met, reason = condition(), ""
        except ClusterError as error:
            is_met, reason = False, _last_error(error)
        return is_met

    if not wait_until(is_met, timeout_s):
        raise TimeoutError(f"{describe()}{reason}")


def _last_error(error: Exception) -> str:
    return f". The last error: {error}"


def wait_until(condition: Callable[[], bool], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def _bytes(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
