"""What the tests of change capture share: batches without Spark, records applied to tables, and topics."""

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql.streaming.datasource import ReadAllAvailable

from ottla.pipeline.ingest.cdc.envelope import Record
from ottla.pipeline.ingest.cdc.mysql.source import MySqlStreamReader
from ottla.pipeline.ingest.cdc.postgres.settings import PostgresCapture
from ottla.pipeline.ingest.cdc.postgres.source import PostgresStreamReader
from ottla.pipeline.stage import Context

ONCE = {"availableNow": True}
WAIT_S = 60.0


@dataclass
class Batches:
    """A query without Spark: asks the source for batch after batch as Spark does."""

    capture: Any
    offset: dict[str, Any] | None = None
    reader: MySqlStreamReader | PostgresStreamReader = field(init=False)

    def __post_init__(self) -> None:
        is_postgres = isinstance(self.capture, PostgresCapture)
        self.reader = PostgresStreamReader(self.capture) if is_postgres else MySqlStreamReader(self.capture)
        self.offset = self.offset or self.reader.initialOffset()

    def next(self, limit: Any = None) -> list[Record]:
        assert self.offset is not None
        end = self.reader.latestOffset(self.offset, limit or ReadAllAvailable())
        records = self.read(self.offset, end)
        self.offset = end
        return records

    def all(self, limit: Any = None) -> list[Record]:
        """Until there is nothing new. Each batch is committed before the next, as Spark does it.

        PostgreSQL needs the commits to come to an end: reading from an LSN where transactions were open writes to its
        log.
        """
        records: list[Record] = []
        while True:
            before = self.offset
            assert before is not None
            self.reader.commit(before)
            records += self.next(limit)
            if self.offset == before:
                return records

    def read(self, start: dict[str, Any], end: dict[str, Any]) -> list[Record]:
        batches = (batch for part in self.reader.partitions(start, end) for batch in self.reader.read(part))
        return [
            Record(row["topic"], row["key"], row["value"]) for batch in batches for row in batch.to_pylist()
        ]


def envelopes(records: Iterable[Record]) -> list[dict[str, Any]]:
    """The values of all records but tombstones."""
    return [json.loads(record.value) for record in records if record.value is not None]


def apply_changes(records: Iterable[Record]) -> dict[str, dict[str, Any]]:
    """The tables that the records describe: by name, rows by key. Fails for a record that does not fit."""
    tables: dict[str, dict[str, Any]] = {}
    for record in records:
        if record.value is None:
            continue
        change = json.loads(record.value)
        rows = tables.setdefault(change["source"]["table"], {})
        key = record.key.decode() if record.key is not None else None
        if change["op"] == "t":
            rows.clear()
            continue
        assert key is not None
        if change["op"] in "cr":
            assert key not in rows, f"{key} came twice"
            rows[key] = change["after"]
        else:
            assert rows.pop(key) is not None
            if change["op"] == "u":
                rows[key] = change["after"]
    return tables


def make_topic(context: Context, topic: str, partitions: int = 3) -> None:
    admin = AdminClient(context.cluster.client_config())
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result()


def committed_records(context: Context, topic: str) -> list[Record]:
    """All committed records; those of one key in their order."""
    consumer = Consumer(
        context.cluster.client_config(
            **{
                "group.id": f"reads-{topic}",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
            }
        )
    )
    records: list[Record] = []
    ended: set[int | None] = set()
    consumer.subscribe([topic])
    partitions = len(consumer.list_topics(topic).topics[topic].partitions)
    until = time.monotonic() + WAIT_S
    while len(ended) < partitions:
        assert time.monotonic() < until
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error():
            ended.add(message.partition())
        else:
            records.append(Record(topic, message.key(), message.value()))
    consumer.close()
    return records
