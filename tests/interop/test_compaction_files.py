"""A directory that Ottla has cleaned is served and cleaned by Apache Kafka, and the other way round."""

import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from tests.interop.brokers import RunningBroker, run_kafka
from tests.interop.kafka_jars import ensure_jars, why_no_jars
from tests.interop.test_kafka_files import dump_log_segments
from tests.unit.storage.cleaner_bench import clean

from ottla.env.real_disk import RealDisk
from ottla.model.ids import TopicPartition
from ottla.storage.checkpoints import read_offset_checkpoint
from ottla.storage.log_config import LogConfig
from ottla.storage.log_dir import CLEANER_OFFSETS
from ottla.storage.log_dirs import LogDirs

pytestmark = [
    pytest.mark.java,
    pytest.mark.slow,
    pytest.mark.skipif(ensure_jars() is None, reason=why_no_jars()),
]

TOPIC = TopicPartition("changes", 0)
KEYS = 300
NEVER = "1.0"  # a ratio that no log exceeds
COMPACTED = LogConfig(segment_bytes=1 << 20, cleanup_policy=frozenset({"compact"}), delete_retention_ms=1)
State = dict[bytes, bytes]


def write(broker: RunningBroker, random: Random, state: State) -> None:
    """Writes plain, transactional and aborted records and tombstones; `state` is the resulting state."""
    plain = Producer(
        {"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "compression.type": "lz4"}
    )
    transactional = Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": f"writer-{random.random()}"}
    )
    transactional.init_transactions(30)
    for _ in range(30):
        kind = random.choice(("plain", "plain", "commit", "abort"))
        producer = plain if kind == "plain" else transactional
        if producer is transactional:
            producer.begin_transaction()
        changes: dict[bytes, bytes | None] = {}
        for _ in range(100):
            key = b"key-%d" % random.randrange(KEYS)
            changes[key] = None if random.random() < 0.1 else random.randbytes(1000)
            producer.produce(TOPIC.topic, changes[key], key, partition=0)
        if kind == "abort":
            producer.flush(30)
            producer.abort_transaction(30)
            continue
        producer.flush(30)
        if kind == "commit":
            producer.commit_transaction(30)
        for key, value in changes.items():
            if value is None:
                state.pop(key, None)
            else:
                state[key] = value


def read(broker: RunningBroker) -> State:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reader",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "check.crcs": True,
        }
    )
    consumer.assign([ClientPartition(TOPIC.topic, 0, 0)])
    state: State = {}
    last = -1
    while True:
        message = consumer.poll(30)
        assert message is not None
        if message.error():
            break
        key, value, offset = message.key(), message.value(), message.offset()
        assert key is not None
        assert offset is not None
        assert offset > last
        last = offset
        if value is None:
            state.pop(key, None)
        else:
            state[key] = value
    consumer.close()
    return state


def clean_with_ottla(directory: Path, high_watermark: int) -> int:
    """Cleans all closed segments while no broker uses the directory. Returns the end offset of the cleaning."""
    dirs = LogDirs(RealDisk(), [str(directory)])
    now_ms = time.time_ns() // 1_000_000
    for partition in dirs.partitions:
        dirs.open(partition, COMPACTED, now_ms)
    log = dirs.logs[TOPIC]
    before = log.size_bytes
    result = clean(log, RealDisk(), now_ms, dedupe_bytes=1 << 24)
    assert result is not None
    assert log.size_bytes < before
    for checkpoint in dirs.cleaner_offset_checkpoints():
        checkpoint.write()
    dirs.close(broker_epoch=-1, high_watermarks=dirs.high_watermarks | {TOPIC: high_watermark})
    return result.clean_up_to


def dump(directory: Path) -> None:
    """Kafka's own tool finds no error in the segments and their indexes."""
    logs = sorted((directory / str(TOPIC)).glob("*.log"))
    indexes = sorted((directory / str(TOPIC)).glob("*.*index"))
    dumped = dump_log_segments("--deep-iteration", "--files", ",".join(map(str, [*logs, *indexes])))
    assert "isvalid: false" not in dumped
    assert "Mismatches in" not in dumped
    assert "Found timestamp mismatch" not in dumped
    assert "deleteHorizonMs" in dumped


def checkpointed(directory: Path) -> int:
    return read_offset_checkpoint(RealDisk(), str(directory / CLEANER_OFFSETS)).get(TOPIC, 0)


def end_offset(broker: RunningBroker) -> int:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "offsets"})
    _, end = consumer.get_watermark_offsets(ClientPartition(TOPIC.topic, 0), timeout=30)
    consumer.close()
    return int(end)


def set_ratio(broker: RunningBroker, ratio: str) -> None:
    """Lets Kafka clean the topic from now on."""
    entry = ConfigEntry("min.cleanable.dirty.ratio", ratio, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, TOPIC.topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for altered in admin.incremental_alter_configs([resource]).values():
        altered.result(30)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_ottla_and_kafka_clean_the_same_directory_alternately(tmp_path: Path) -> None:
    directory, random, state = tmp_path / "kafka", Random(7), State()
    with run_kafka(directory, set={"log.cleaner.backoff.ms": "300"}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        config = {
            "cleanup.policy": "compact",
            "segment.bytes": str(1 << 20),
            "delete.retention.ms": "1",
            "min.cleanable.dirty.ratio": NEVER,
        }
        for created in admin.create_topics([NewTopic(TOPIC.topic, 1, 1, config=config)]).values():
            created.result(30)
        write(broker, random, state)
        end = end_offset(broker)
        broker.stop()

        ours = clean_with_ottla(directory, end)
        dump(directory)
        broker.start()
        assert read(broker) == state
        write(broker, random, state)
        set_ratio(broker, "0.001")
        wait_until(lambda: checkpointed(directory) > ours)
        assert "marking its partition" not in broker.log_text(), "Kafka found the log uncleanable"
        assert read(broker) == state
        set_ratio(broker, NEVER)
        write(broker, random, state)
        end = end_offset(broker)
        broker.stop()

        theirs = checkpointed(directory)
        assert clean_with_ottla(directory, end) > theirs
        dump(directory)
        broker.start()
        assert read(broker) == state
