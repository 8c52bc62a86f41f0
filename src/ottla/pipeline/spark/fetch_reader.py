"""Reads a range of offsets of one partition as Arrow batches, over a plaintext socket. Runs in executors."""

import time
from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa

from ottla.model.errors import KafkaError
from ottla.model.ids import TopicPartition
from ottla.pipeline.errors import PipelineError, RetriableError
from ottla.pipeline.spark import wire
from ottla.pipeline.spark.data_loss import log_ends_before, position_after_loss
from ottla.pipeline.spark.offsets import OffsetRange
from ottla.pipeline.spark.options import ReadOptions
from ottla.pipeline.spark.record_rows import CorruptBatch, rows_of, visible_batches, whole_batches
from ottla.rpc import parse_bootstrap_servers

# large, so that numpy works on many records at once
_FETCH_BYTES = 4 << 20
_FETCH_WAIT_MS = 500
_SOCKET_TIMEOUT_S = 30.0
_RETRY_PAUSE_S = 0.1
# A broker may not know a topic for a moment after it was created or moved.
GONE_AFTER_S = 5.0
# leader or replica not available, not the leader, storage error, fenced or unknown leader epoch, offset not available
_RETRIED = (wire.UNKNOWN_TOPIC_OR_PARTITION, 5, 6, 9, 56, 74, 75, 78)
# authorization failed: for the topic, the group or the cluster
_FORBIDDEN = (29, 30, 31)


def fetch_range(options: ReadOptions, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
    """Every record of the range once, in order.

    It ends by position: offsets have gaps where a log was compacted or a transaction ended.
    """
    fetcher = PartitionFetcher(options, wanted.at)
    position = wanted.start
    try:
        while position < wanted.end:
            fetched = fetcher.fetch(position)
            if fetched is None or fetched.error == wire.OFFSET_OUT_OF_RANGE:
                fetcher.check_timeout(f"offset {position} is out of range")
                position = position_after_loss(options, wanted, position)
                continue
            # A broker sends whole batches, so records before the position may come too.
            rest = wanted._replace(start=position)
            batches = whole_batches(fetched.data, fetched.start, fetched.end)
            if batches:
                position = max(position, batches[-1].header.next_offset)
                fetcher.restart_timeout()
            elif fetcher.is_timed_out:
                if log_ends_before(options, wanted, position):
                    return
                fetcher.check_timeout(f"no record from offset {position} on")
            if position < wanted.end:
                fetcher.request_ahead(position)
            seen = visible_batches(fetched.data, batches, fetched.aborted, options.read_committed)
            rows = rows_of(fetched.data, seen, rest, options.extras)
            if rows is not None:
                yield rows
                # The time that Spark spends on these rows does not count.
                fetcher.restart_timeout()
    except (CorruptBatch, KafkaError) as error:
        raise PipelineError(
            f"{wanted.at} is damaged near offset {position}: {error}.",
            "Restore it from a replica or the archive, or start after it.",
        ) from error
    finally:
        fetcher.close()


class PartitionFetcher:
    """Fetches from the partition's leader, and finds it again when it moves or is down for a while."""

    def __init__(self, options: ReadOptions, at: TopicPartition) -> None:
        self.options = options
        self.at = at
        self.connection: wire.Connection | None = None
        self._requested: int | None = None
        self._missing_since: float | None = None
        self.restart_timeout()

    def restart_timeout(self) -> None:
        """Restarts the time within which the broker has to send records."""
        self._waiting_since_s = time.monotonic()

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
        self.connection = self._requested = None

    def fetch(self, position: int) -> wire.Fetched | None:
        """None if the partition does not exist."""
        while True:
            try:
                fetched = self._receive(position)
            except OSError as error:
                self._retry(str(error))
            except LookupError:
                self._missing_since = self._missing_since or time.monotonic()
                if time.monotonic() - self._missing_since > GONE_AFTER_S:
                    return None
                self._retry("it does not exist")
            else:
                self._missing_since = None
                if fetched.error in (wire.NO_ERROR, wire.OFFSET_OUT_OF_RANGE):
                    return fetched
                self._check(fetched.error, position)

    def _receive(self, position: int) -> wire.Fetched:
        if self._requested != position:
            self._request(position)
        assert self.connection is not None
        fetched = self.connection.receive_fetch()
        self._requested = None
        return fetched

    def _request(self, position: int) -> None:
        if self.connection is None:
            self.connection = self.connect()
        self.connection.send_fetch(
            wire.PartitionFetch(self.at, position, _FETCH_BYTES, _FETCH_WAIT_MS, self.options.read_committed)
        )
        self._requested = position

    def request_ahead(self, position: int) -> None:
        """Requests the next records now, so that the broker works while the rows of the last are made."""
        try:
            self._request(position)
        except OSError:
            self.close()

    def connect(self) -> wire.Connection:
        """Connects to the leader. Raises LookupError if the partition does not exist, OSError if no broker responds."""
        client_id = self.options.client.get("client.id", "ottla-spark")
        failed = OSError("no bootstrap server is given")
        for address in parse_bootstrap_servers(self.options.client["bootstrap.servers"]):
            try:
                with closing(wire.Connection(address, client_id, _SOCKET_TIMEOUT_S)) as bootstrap:
                    leader = bootstrap.find_leader(self.at)
            except OSError as error:
                failed = OSError(f"{address}: {error}")
                continue
            if leader is None:
                raise OSError("it has no leader")
            return wire.Connection(leader, client_id, _SOCKET_TIMEOUT_S)
        raise failed

    def _check(self, code: int, position: int) -> None:
        """Waits a moment if the error is retriable, and raises PipelineError otherwise."""
        if code in _RETRIED:
            self._retry(f"the broker responds with error {code}")
        elif code in _FORBIDDEN:
            raise PipelineError(
                f"This client is not allowed to read {self.at} (error {code}).", "Allow it to read."
            )
        else:
            raise PipelineError(
                f"{self.at} cannot be read at offset {position}: the broker responds with error {code}.",
                "Check the broker's log.",
            )

    def _retry(self, why: str) -> None:
        self.close()
        self.check_timeout(why)
        time.sleep(_RETRY_PAUSE_S)

    @property
    def is_timed_out(self) -> bool:
        return time.monotonic() - self._waiting_since_s > self.options.poll_timeout_s

    def check_timeout(self, why: str) -> None:
        if self.is_timed_out:
            raise RetriableError(
                f"{self.at} sent nothing for {self.options.poll_timeout_s:.0f} s: {why}.",
                "Check that the cluster runs.",
            )
