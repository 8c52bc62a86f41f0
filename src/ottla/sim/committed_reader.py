"""A read_committed consumer: it skips records of aborted transactions, which the fetch response lists."""

import asyncio

from kio.schema.fetch.v17.response import PartitionData

from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.records.markers import read_marker
from ottla.sim.client import SimClient
from ottla.sim.group_client import Topic
from ottla.sim.history import Value, Violation
from ottla.sim.partition_clients import RETRIABLE, RETRY_PAUSE_S, batches_of
from ottla.sim.transaction_history import TransactionHistory

_READ_COMMITTED = 1


class CommittedReader:
    def __init__(self, client: SimClient, history: TransactionHistory, topic: Topic, partition: int) -> None:
        self.topic_partition = TopicPartition(topic.name, partition)
        self._client = client
        self._history = history
        self._topic = topic
        self._now_s = asyncio.get_running_loop().time

    async def follow(self) -> None:
        """Reads until cancelled."""
        offset = 0
        while True:
            response = await self._fetch(offset)
            if response is not None:
                records, offset = _committed(response, offset)
                for found, value in records:
                    self._history.see(self.topic_partition, found, value)
                self._history.see_position(self.topic_partition, offset)

    async def read_all(self) -> list[tuple[int, Value]]:
        """Reads up to the high watermark. No transaction may be open."""
        records: list[tuple[int, Value]] = []
        offset, end_offset = 0, 1
        while offset < end_offset:
            response = await self._fetch(offset)
            if response is not None:
                found, offset = _committed(response, offset)
                records += found
                end_offset = response.high_watermark
        return records

    async def is_stable(self) -> bool:
        """Whether no transaction is open."""
        response = await self._fetch(0)
        return response is not None and response.last_stable_offset == response.high_watermark

    async def _fetch(self, offset: int) -> PartitionData | None:
        open_before = self._history.open_transactions(self.topic_partition, self._now_s())
        try:
            response = await self._client.fetch(
                self._topic.topic_id, self.topic_partition.partition, offset, isolation_level=_READ_COMMITTED
            )
        except OSError:
            await asyncio.sleep(RETRY_PAUSE_S)
            return None
        if response.error_code in RETRIABLE:
            await asyncio.sleep(RETRY_PAUSE_S)
            return None
        if response.error_code != ErrorCode.none:
            raise Violation(f"a fetch from offset {offset} got {response.error_code.name}")
        self._history.see_last_stable_offset(
            self.topic_partition, response.last_stable_offset, open_before, self._now_s()
        )
        return response


def _committed(response: PartitionData, offset: int) -> tuple[list[tuple[int, Value]], int]:
    """Returns the records that the consumer sees, and the next offset."""
    transactions = response.aborted_transactions or ()
    begins = sorted((transaction.first_offset, transaction.producer_id) for transaction in transactions)
    aborted: set[int] = set()
    records: list[tuple[int, Value]] = []
    for header, found in batches_of(response):
        while begins and begins[0][0] <= header.last_offset:
            aborted.add(begins.pop(0)[1])
        if header.is_control:
            if read_marker(found[0]) is not None:
                aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborted):
            records += [
                (record.offset, Value.decode(record.key or b""))
                for record in found
                if record.offset >= offset
            ]
        if header.last_offset >= response.last_stable_offset:
            raise Violation(
                f"a read_committed fetch returned offset {header.last_offset}, but the last stable offset is "
                f"{response.last_stable_offset}"
            )
        offset = max(offset, header.last_offset + 1)
    return records, offset
