"""`python -m tests.fuzz.record_corpus` records requests of real clients as the corpus of the fuzzer.

A proxy stands between the clients and a broker that advertises the proxy's address. It keeps a few different requests
for each API, version and client in `recorded_requests.jsonl`.
"""

import asyncio
import base64
import contextlib
import json
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
)
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient
from tests.fuzz.corpus import RECORDED, TOPIC
from tests.interop.brokers import free_ports, run_ottla
from tests.interop.kafka_jars import ensure_jars, java_command
from tests.interop.wire import address_of

KEPT_OF_EACH = 3
SIZE_MAX = 8_000


class Recorder:
    """A proxy that keeps frames from clients. `client` is the name of the current client."""

    def __init__(self, port: int, bootstrap: str) -> None:
        self.client = ""
        self._kept: dict[tuple[int, int, str], list[bytes]] = {}
        self._target = address_of(bootstrap)
        self._listener = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._accept, daemon=True).start()

    def lines(self) -> list[str]:
        return [
            json.dumps(
                {"api": api, "version": version, "client": client, "frame": base64.b64encode(frame).decode()}
            )
            for (api, version, client), frames in sorted(self._kept.items())
            for frame in frames
        ]

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            broker = socket.create_connection(self._target)
            threading.Thread(target=self._forward, args=(client, broker, self._keep), daemon=True).start()
            threading.Thread(target=self._forward, args=(broker, client, None), daemon=True).start()

    def _forward(
        self, source: socket.socket, target: socket.socket, keep: Callable[[bytes], None] | None
    ) -> None:
        received = b""
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
                if keep is None:
                    continue
                received += data
                while len(received) >= 4:
                    (size,) = struct.unpack_from(">i", received)
                    if len(received) < 4 + size:
                        break
                    keep(received[4 : 4 + size])
                    received = received[4 + size :]
        for side in (source, target):
            with contextlib.suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)

    def _keep(self, frame: bytes) -> None:
        api, version = struct.unpack_from(">hh", frame)
        kept = self._kept.setdefault((api, version, self.client), [])
        if len(frame) <= SIZE_MAX and len(kept) < KEPT_OF_EACH and len(frame) not in map(len, kept):
            kept.append(frame)


def librdkafka(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wait_for(admin.create_topics([NewTopic(TOPIC, 3, 1), NewTopic("gone", 1, 1)]))
    wait_for(admin.delete_topics(["gone"]))
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 50})
        for number in range(50):
            producer.produce(TOPIC, f"value {number}", f"key {number}", headers={"h": b"1"})
        producer.flush(30)
    for protocol in ("classic", "consumer"):
        group = {"bootstrap.servers": bootstrap, "group.id": protocol, "group.protocol": protocol}
        consumer = Consumer({**group, "auto.offset.reset": "earliest", "isolation.level": "read_committed"})
        consumer.subscribe([TOPIC])
        while consumer.poll(10.0) is None:
            pass
        consumer.commit(asynchronous=False)
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": protocol})
        producer.init_transactions(30)
        for is_committed in (True, False):
            producer.begin_transaction()
            producer.produce(TOPIC, "in a transaction")
            producer.send_offsets_to_transaction(
                [TopicPartition(TOPIC, 0, 1)], consumer.consumer_group_metadata(), 30
            )
            if is_committed:
                producer.commit_transaction(30)
            else:
                producer.abort_transaction(30)
        consumer.offsets_for_times([TopicPartition(TOPIC, 0, 1)], 30)
        consumer.close()
    send_admin_requests(admin)


def send_admin_requests(admin: AdminClient) -> None:
    resource = ConfigResource(ConfigResource.Type.TOPIC, TOPIC)
    wait_for(admin.describe_configs([resource]))
    entry = ConfigEntry("retention.ms", "1000000", incremental_operation=AlterConfigOpType.SET)
    change = ConfigResource(ConfigResource.Type.TOPIC, TOPIC, incremental_configs=[entry])
    wait_for(admin.incremental_alter_configs([change]))
    wait_for(admin.list_offsets({TopicPartition(TOPIC, 0): OffsetSpec.latest()}))
    wait_for(admin.delete_records([TopicPartition(TOPIC, 0, 1)]))
    admin.list_consumer_groups().result(30)
    wait_for(admin.describe_consumer_groups(["classic", "consumer"]))
    wait_for(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("classic")]))
    offsets = [TopicPartition(TOPIC, 0, 2)]
    wait_for(admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions("classic", offsets)]))
    wait_for(admin.delete_consumer_groups(["consumer"]))
    admin.describe_cluster().result(30)


def wait_for(futures: Mapping[Any, Future[Any]]) -> None:
    for future in futures.values():
        future.result(30)


def kafka_python(bootstrap: str) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    producer.send(TOPIC, b"value", b"key").get(30)
    producer.close()
    consumer = KafkaConsumer(
        TOPIC, bootstrap_servers=bootstrap, group_id="kafka-python", auto_offset_reset="earliest"
    )
    while not consumer.poll(10_000):
        pass
    consumer.commit()
    consumer.close()
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.describe_cluster()
    admin.list_topics()
    admin.close()


def aiokafka(bootstrap: str) -> None:
    async def run() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="aiokafka")
        await producer.start()
        async with producer.transaction():
            await producer.send_and_wait(TOPIC, b"value")
        await producer.stop()
        consumer = AIOKafkaConsumer(
            TOPIC, bootstrap_servers=bootstrap, group_id="aiokafka", auto_offset_reset="earliest"
        )
        await consumer.start()
        await consumer.getone()
        await consumer.commit()
        await consumer.stop()

    asyncio.run(run())


JAVA_TOOLS = (
    "org.apache.kafka.tools.TopicCommand --describe",
    f"org.apache.kafka.tools.TopicCommand --alter --topic {TOPIC} --partitions 4",
    f"org.apache.kafka.tools.GetOffsetShell --topic {TOPIC}",
    "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand --all-groups --describe",
    "org.apache.kafka.tools.LogDirsCommand --describe",
    "org.apache.kafka.tools.TransactionsCommand list",
    "org.apache.kafka.tools.TransactionsCommand describe --transactional-id classic",
    f"org.apache.kafka.tools.TransactionsCommand describe-producers --topic {TOPIC} --partition 0",
    "org.apache.kafka.tools.MetadataQuorumCommand describe --status",
    "org.apache.kafka.tools.FeatureCommand describe",
    "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "org.apache.kafka.tools.ClientMetricsCommand --list",
    f"org.apache.kafka.tools.ProducerPerformance --topic {TOPIC} --num-records 50 --record-size 50 --throughput -1",
    f"org.apache.kafka.tools.consumer.ConsoleConsumer --topic {TOPIC} --from-beginning --max-messages 5 --group java",
)


def java(bootstrap: str) -> None:
    libs = ensure_jars()
    if libs is None:
        return
    for line in JAVA_TOOLS:
        tool, *arguments = line.split()
        server = ["--bootstrap-server", bootstrap]
        subprocess.run(
            java_command(libs, tool, *server, *arguments), capture_output=True, timeout=60, check=False
        )


@contextlib.contextmanager
def recorded() -> Iterator[tuple[Recorder, str]]:
    (port,) = free_ports(1)
    advertised = {
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "group.initial.rebalance.delay.ms": "0",
    }
    with (
        tempfile.TemporaryDirectory() as folder,
        run_ottla(Path(folder) / "data", set=advertised) as broker,
    ):
        yield Recorder(port, broker.bootstrap), f"127.0.0.1:{port}"


def main() -> int:
    with recorded() as (recorder, bootstrap):
        for client in (librdkafka, kafka_python, aiokafka, java):
            recorder.client = client.__name__
            print(client.__name__, flush=True)
            client(bootstrap)
        lines = recorder.lines()
    RECORDED.write_text("".join(f"{line}\n" for line in lines))
    print(f"{len(lines)} requests in {RECORDED}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
