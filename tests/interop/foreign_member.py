"""A member of a group as a process, with a client other than librdkafka: `kafka-python` or `aiokafka`.

It speaks as `group_member` does: one JSON event a line (assigned, revoked, record, error, closed), and {"do": "close"}
on stdin ends it. Offsets are committed after the records are printed, and before a partition is given away.
"""

import asyncio
import json
import sys
import threading
from collections.abc import Iterable
from typing import Any

POLL_MS = 50
# kafka-python loses the assignment of a join that takes longer than the poll that started it: its polls are long.
LONG_POLL_MS = 2000
closing = threading.Event()


def emit(event: str, **fields: object) -> None:
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


def emit_partitions(event: str, partitions: Iterable[Any]) -> None:
    emit(event, partitions=[[p.topic, p.partition] for p in partitions])


def emit_records(records: Iterable[Any]) -> int:
    count = 0
    for record in records:
        emit("record", topic=record.topic, partition=record.partition, offset=record.offset)
        count += 1
    return count


def wait_for_close() -> None:
    for line in sys.stdin:
        if json.loads(line)["do"] == "close":
            break
    closing.set()


def run_kafka_python(config: dict[str, Any], topics: list[str], pattern: str | None) -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer
    from kafka.errors import KafkaError

    consumer = KafkaConsumer(enable_auto_commit=False, **config)

    class Listener(ConsumerRebalanceListener):
        def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
            emit_partitions("assigned", assigned)

        def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
            emit_partitions("revoked", revoked)

    consumer.subscribe(topics=topics or (), pattern=pattern, listener=Listener())
    while not closing.is_set():
        polled = consumer.poll(timeout_ms=LONG_POLL_MS)
        if emit_records(record for records in polled.values() for record in records):
            try:
                consumer.commit()
            except KafkaError as error:
                emit("error", code=type(error).__name__)
    consumer.close(autocommit=False)
    emit("closed")


async def run_aiokafka(config: dict[str, Any], topics: list[str], pattern: str | None) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.errors import KafkaError

    class Listener(ConsumerRebalanceListener):
        async def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
            emit_partitions("assigned", assigned)

        async def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
            emit_partitions("revoked", revoked)

    # kafka-python offers it too, so that they can share a group. With two assignors aiokafka sends two different
    # JoinGroup requests for each join, and a group of two may rebalance forever, also on Kafka.
    assignors = (RangePartitionAssignor,)
    consumer = AIOKafkaConsumer(enable_auto_commit=False, partition_assignment_strategy=assignors, **config)
    consumer.subscribe(topics=topics, pattern=pattern, listener=Listener())
    await consumer.start()
    while not closing.is_set():
        polled = await consumer.getmany(timeout_ms=POLL_MS)
        if emit_records(record for records in polled.values() for record in records):
            try:
                await consumer.commit()
            except KafkaError as error:
                emit("error", code=type(error).__name__)
    await consumer.stop()
    emit("closed")


def main() -> None:
    client, arguments = sys.argv[1], json.loads(sys.argv[2])
    config = {
        "bootstrap_servers": arguments["bootstrap"],
        "group_id": arguments["group"],
        "auto_offset_reset": "earliest" if arguments["earliest"] else "latest",
        "session_timeout_ms": arguments["session_ms"],
        "heartbeat_interval_ms": arguments["heartbeat_ms"],
        "fetch_max_wait_ms": 200,
        # How soon it finds topics that match its pattern.
        "metadata_max_age_ms": 300,
    }
    threading.Thread(target=wait_for_close, daemon=True).start()
    if client == "kafka-python":
        run_kafka_python(config, arguments["topics"], arguments["pattern"])
    else:
        asyncio.run(run_aiokafka(config, arguments["topics"], arguments["pattern"]))


if __name__ == "__main__":
    main()
