"""A consumer of `read_committed`: it is told which transactions were aborted, and leaves out their records itself."""

import asyncio

from kio.schema.fetch.v17.response import PartitionData

from ottla.model.errors import ErrorCode
from ottla.records.markers import read_marker
from ottla.sim.client import SimClient
from ottla.sim.group_client import Topic
from ottla.sim.history import Value, Violation
from ottla.sim.transaction_history import Place, TransactionHistory
from ottla.sim.workload import RETRIABLE, RETRY_PAUSE_S, batches_of

READ_COMMITTED = 1


class CommittedReader:
    def __init__(self, client: SimClient, history: TransactionHistory, topic: Topic, partition: int) -> None:
        self.place = Place(topic.name, partition)
        self._client = client
        self._history = history
        self._topic = topic
        self._now_s = asyncio.get_running_loop().time

    async def follow(self) -> None:
        """Reads on and on, until cancelled."""
        offset = 0
        while True:
            answer = await self._fetch(offset)
            if answer is not None:
                records, offset = _committed(answer, offset)
                for found, value in records:
                    self._history.see(self.place, found, value)

    async def read_all(self) -> list[tuple[int, Value]]:
        """Up to the high watermark: nothing may be open any more."""
        records: list[tuple[int, Value]] = []
        offset, end_offset = 0, 1
        while offset < end_offset:
            answer = await self._fetch(offset)
            if answer is not None:
                found, offset = _committed(answer, offset)
                records += found
                end_offset = answer.high_watermark
        return records

    async def is_stable(self) -> bool:
        """Whether no transaction is open."""
        answer = await self._fetch(0)
        return answer is not None and answer.last_stable_offset == answer.high_watermark

    async def _fetch(self, offset: int) -> PartitionData | None:
        open_before = self._history.surely_open(self.place, self._now_s())
        try:
            answer = await self._client.fetch(
                self._topic.topic_id, self.place.partition, offset, isolation_level=READ_COMMITTED
            )
        except OSError:
            await asyncio.sleep(RETRY_PAUSE_S)
            return None
        if answer.error_code in RETRIABLE:
            await asyncio.sleep(RETRY_PAUSE_S)
            return None
        if answer.error_code != ErrorCode.none:
            raise Violation(f"a fetch from offset {offset} was answered with {answer.error_code.name}")
        self._history.see_last_stable_offset(
            self.place, answer.last_stable_offset, open_before, self._now_s()
        )
        return answer


def _committed(answer: PartitionData, offset: int) -> tuple[list[tuple[int, Value]], int]:
    """The records to be shown, and where to read on."""
    begins = sorted((each.first_offset, each.producer_id) for each in answer.aborted_transactions or ())
    aborted: set[int] = set()
    records: list[tuple[int, Value]] = []
    for header, found in batches_of(answer):
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
        if header.last_offset >= answer.last_stable_offset:
            raise Violation(
                f"read_committed is given offset {header.last_offset}, the last stable offset is "
                f"{answer.last_stable_offset}"
            )
        offset = max(offset, header.last_offset + 1)
    return records, offset
