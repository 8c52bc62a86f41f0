"""A group of one consumer as a process, with its client's default settings: the latency of each record.

The value of a record is the time at which it was sent, in milliseconds since 1970. The process prints one JSON event a
line: `assigned`, then `record` with `latency_ms`. It runs until it is killed. `node/latency_member.mjs` and
`java/LatencyMember.java` do the same.
"""

import asyncio
import json
import sys
import time
from typing import Any


def emit(event: str, **fields: object) -> None:
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


def emit_latency(value: bytes | None) -> None:
    now_ms = time.time() * 1000
    emit("record", latency_ms=now_ms - float(value or b"nan"))


def run_confluent(bootstrap: str, group_id: str, topic: str, protocol: str) -> None:
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group_id,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic], on_assign=lambda *_: emit("assigned"))
    while True:
        message = consumer.poll(1.0)
        if message is None:
            continue
        error = message.error()
        if error is None:
            emit_latency(message.value())
        else:
            emit("error", text=error.str())


def run_kafka_python(bootstrap: str, group_id: str, topic: str) -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer

    class Listener(ConsumerRebalanceListener):
        def on_partitions_assigned(self, _: Any) -> None:
            emit("assigned")

        def on_partitions_revoked(self, _: Any) -> None:
            pass

    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=group_id, auto_offset_reset="earliest")
    consumer.subscribe(topics=[topic], listener=Listener())
    for record in consumer:
        emit_latency(record.value)


async def run_aiokafka(bootstrap: str, group_id: str, topic: str) -> None:
    from aiokafka import AIOKafkaConsumer

    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=group_id, auto_offset_reset="earliest"
    )
    await consumer.start()
    emit("assigned")
    async for record in consumer:
        emit_latency(record.value)


if __name__ == "__main__":
    client, *arguments = sys.argv[1:]
    match client:
        case "confluent-kafka":
            run_confluent(*arguments)
        case "kafka-python":
            run_kafka_python(*arguments)
        case "aiokafka":
            asyncio.run(run_aiokafka(*arguments))
