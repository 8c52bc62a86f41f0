"""The files have Kafka's format: DumpLogSegments reads ours without an error, and Ottla reads Kafka's."""

import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.interop.brokers import run_kafka
from tests.interop.kafka_jars import ensure_jars, java_command, why_no_jars

from ottla.env.real_disk import RealDisk
from ottla.model.ids import TopicPartition
from ottla.records.control import build_control_batch
from ottla.records.header import read_header
from ottla.records.markers import EndTransactionMarker
from ottla.records.records import Record, build_batch, read_batches
from ottla.storage.dump import dump_file
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig
from ottla.storage.log_dirs import LogDirs

pytestmark = pytest.mark.java

NOW_MS = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def dump_log_segments(*args: str) -> str:
    libs = ensure_jars()
    assert libs is not None
    command = java_command(libs, "org.apache.kafka.tools.DumpLogSegments", *args)
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr + result.stdout
    assert "Exception" not in result.stderr + result.stdout, result.stderr + result.stdout
    return result.stdout


@pytest.fixture(scope="module")
def ottla_log(tmp_path_factory: pytest.TempPathFactory) -> Log:
    """Every codec, three leader epochs, idempotent and transactional producers, several segments; closed cleanly."""
    directory = tmp_path_factory.mktemp("ottla") / "orders-0"
    config = LogConfig(segment_bytes=32 * 1024, index_interval_bytes=1024)
    log = Log.open(
        RealDisk(),
        str(directory),
        TopicPartition("orders", 0),
        config,
        clean_shutdown=False,
        now_ms=NOW_MS,
        topic_id=uuid.UUID(int=0x1234),
    )
    for number in range(600):
        offset = log.log_end_offset
        records = [
            Record(
                offset + index,
                NOW_MS + offset + index,
                b"key-%d" % (offset + index),
                b"value " * (number % 50),
                (("header", b"1"), ("empty", None)),
            )
            for index in range(1 + number % 4)
        ]
        data = build_batch(
            records,
            codec=number % 5,
            leader_epoch=number // 200,
            producer_id=number % 3 - 1,
            producer_epoch=0,
            base_sequence=number,
            transactional=number % 3 == 2,
        )
        log.append([(read_header(data), [data])], NOW_MS)
        if number % 30 == 29:
            marker = build_control_batch(
                [EndTransactionMarker(commit=number % 60 == 59, coordinator_epoch=1)],
                base_offset=log.log_end_offset,
                timestamp=NOW_MS,
                leader_epoch=number // 200,
                producer_id=1,
                producer_epoch=0,
            )
            log.append([(read_header(marker), [marker])], NOW_MS)
    assert len(log.segments) > 2
    log.close(clean=True)
    return log


def files_of(log: Log, suffix: str) -> str:
    paths = sorted(str(path) for path in Path(log.directory).glob(f"*{suffix}"))
    assert paths
    return ",".join(paths)


def test_kafka_reads_the_records_of_every_segment(ottla_log: Log) -> None:
    shown = dump_log_segments("--deep-iteration", "--print-data-log", "--files", files_of(ottla_log, ".log"))
    batches = [line for line in shown.splitlines() if line.startswith("baseOffset:")]
    assert all("isvalid: true" in line for line in batches)
    offsets = [int(line.split()[2]) for line in shown.splitlines() if line.startswith("| offset:")]
    assert offsets == list(range(ottla_log.log_end_offset))
    assert "endTxnMarker: ABORT" in shown
    assert "endTxnMarker: COMMIT" in shown


@pytest.mark.parametrize("flag", ["--index-sanity-check", "--verify-index-only"])
def test_kafka_finds_the_indexes_in_order(ottla_log: Log, flag: str) -> None:
    shown = dump_log_segments(flag, "--files", files_of(ottla_log, "index"))
    for complaint in ("mismatch", "out of order", "Index file corrupt", "not found", "Found timestamp"):
        assert complaint not in shown, shown
    if flag == "--index-sanity-check":
        passed = [line for line in shown.splitlines() if line.endswith("passed sanity check.")]
        # Kafka's tool shows transaction indexes, but has no check for them.
        assert len(passed) == 2 * len(ottla_log.segments)


@pytest.mark.parametrize(
    ("suffix", "fields"), [(".index", ("offset", "position")), (".timeindex", ("timestamp", "offset"))]
)
def test_kafka_and_ottla_show_the_same_index_entries(
    ottla_log: Log, suffix: str, fields: tuple[str, str]
) -> None:
    files = files_of(ottla_log, suffix)
    shown = [
        tuple(int(word) for word in line.split() if word.isdigit())
        for line in dump_log_segments("--files", files).splitlines()
        if line.startswith(f"{fields[0]}:")
    ]
    ours = [
        tuple(entry[name] for name in fields)
        for path in files.split(",")
        for entry in dump_file(RealDisk(), path)
    ]
    assert ours == shown
    assert len(ours) > 20


def test_kafka_reads_the_producer_snapshots_and_transaction_indexes(ottla_log: Log) -> None:
    newest = files_of(ottla_log, ".snapshot").split(",")[-1]
    shown = dump_log_segments("--files", newest)
    assert shown.count("producerId:") == len(ottla_log.producers) == 2
    shown = dump_log_segments("--files", files_of(ottla_log, ".txnindex"))
    assert shown.count("producerId:") == len(ottla_log.aborted_transactions(0, ottla_log.log_end_offset)) > 2


@pytest.fixture(scope="module")
def kafka_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of Apache Kafka after a clean stop: 200 records in each codec, over several small segments."""
    if ensure_jars() is None:
        pytest.skip(why_no_jars())
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    directory = tmp_path_factory.mktemp("kafka") / "data"
    with run_kafka(
        directory, set={"log.segment.bytes": "1048576", "log.index.interval.bytes": "1024"}
    ) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        topics = [NewTopic(f"written-{codec}", 1, 1) for codec in (*CODECS, "transactions")]
        for created in admin.create_topics(topics).values():
            created.result(30)
        for codec in CODECS:
            producer = Producer(
                {
                    "bootstrap.servers": broker.bootstrap,
                    "compression.type": codec,
                    "enable.idempotence": True,
                    "batch.num.messages": 7,
                }
            )
            for number in range(200):
                producer.produce(
                    f"written-{codec}",
                    b"%d" % number * 3000,
                    b"key-%d" % number,
                    partition=0,
                    timestamp=NOW_MS + number,
                    headers=[("n", b"%d" % number)],
                )
            assert producer.flush(30) == 0
        produce_transactions(broker.bootstrap)
        assert broker.stop() in (0, 143)
    return directory


def produce_transactions(bootstrap: str) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "writer"})
    producer.init_transactions(30)
    for number in range(6):
        producer.begin_transaction()
        for _ in range(20):
            producer.produce("written-transactions", b"v" * 500, partition=0)
        producer.flush(30)
        if number % 2:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)


@pytest.fixture
def opened(kafka_directory: Path) -> Iterator[LogDirs]:
    dirs = LogDirs(RealDisk(), [str(kafka_directory)])
    yield dirs
    # Nothing was written: the directory is left as Kafka wrote it.
    dirs.release()
    (kafka_directory / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":-1}')


def read_records(log: Log) -> list[Record]:
    records: list[Record] = []
    while not records or records[-1].offset + 1 < log.log_end_offset:
        offset = records[-1].offset + 1 if records else 0
        found = log.read(offset, 5000, end_offset=log.log_end_offset, at_least_one=True)
        records += [record for batch in read_batches(found.region.read()) for record in batch.records]
    return records


@pytest.mark.parametrize("codec", CODECS)
def test_a_directory_that_kafka_wrote_is_opened_and_read(opened: LogDirs, codec: str) -> None:
    partition = TopicPartition(f"written-{codec}", 0)
    log = opened.open(partition, LogConfig(), NOW_MS)
    assert (log.log_start_offset, log.log_end_offset) == (0, 200)
    assert opened.high_watermarks[partition] == 200
    assert log.topic_id is not None
    records = read_records(log)
    assert [record.offset for record in records] == list(range(200))
    assert [record.value for record in records] == [b"%d" % number * 3000 for number in range(200)]
    assert records[7].headers == (("n", b"7"),)
    assert log.epochs.entries() == [(0, 0)]
    [producer] = log.producers.entries()
    assert (producer.last_sequence, producer.last_offset) == (199, 199)
    found = log.offset_for_timestamp(NOW_MS + 123)
    assert found is not None
    assert (found.timestamp, found.offset) == (NOW_MS + 123, 123)
    if codec == "none":
        assert len(log.segments) > 1


@pytest.mark.parametrize("codec", CODECS)
def test_recovery_of_kafkas_files_changes_no_byte(kafka_directory: Path, tmp_path: Path, codec: str) -> None:
    source = kafka_directory / f"written-{codec}-0"
    copy = tmp_path / f"written-{codec}-0"
    shutil.copytree(source, copy)
    log = Log.open(
        RealDisk(),
        str(copy),
        TopicPartition(f"written-{codec}", 0),
        LogConfig(index_interval_bytes=1024),
        clean_shutdown=False,
        now_ms=NOW_MS,
    )
    log.close(clean=True)
    assert log.log_end_offset == 200
    for path in sorted(source.iterdir()):
        if path.suffix in (".log", ".index", ".timeindex") or path.name == "leader-epoch-checkpoint":
            assert (copy / path.name).read_bytes() == path.read_bytes(), path.name


def test_aborted_transactions_that_kafka_indexed_are_found(opened: LogDirs) -> None:
    log = opened.open(TopicPartition("written-transactions", 0), LogConfig(), NOW_MS)
    found = log.aborted_transactions(0, log.log_end_offset)
    assert [first_offset for _, first_offset in found] == [0, 42, 84]


def test_ottla_continues_kafkas_directory_and_kafka_continues_ottlas(tmp_path: Path) -> None:
    from confluent_kafka import Consumer, Producer
    from confluent_kafka import TopicPartition as ClientPartition

    directory = tmp_path / "data"
    with run_kafka(directory) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(50):
            producer.produce("shared", b"kafka %d" % number, partition=0)
        assert producer.flush(30) == 0
        broker.stop()
        dirs = LogDirs(RealDisk(), [str(directory)])
        for partition in dirs.partitions:
            dirs.open(partition, LogConfig(), NOW_MS)
        log = dirs.logs[TopicPartition("shared", 0)]
        assert log.log_end_offset == 50
        data = build_batch(
            [Record(50 + index, NOW_MS, None, b"ottla %d" % index) for index in range(50)],
            leader_epoch=log.epochs.latest or 0,
        )
        log.append([(read_header(data), [data])], NOW_MS)
        dirs.close(broker_epoch=-1, high_watermarks=dirs.high_watermarks | {log.topic_partition: 100})
        broker.start()
        consumer = Consumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": "any", "auto.offset.reset": "earliest"}
        )
        consumer.assign([ClientPartition("shared", 0, 0)])
        values: list[bytes | None] = []
        while len(values) < 100:
            message = consumer.poll(30)
            assert message is not None
            assert message.error() is None
            values.append(message.value())
        consumer.close()
        assert values == [b"kafka %d" % i for i in range(50)] + [b"ottla %d" % i for i in range(50)]
        assert "Recovering" not in broker.log_text()
        assert "Found invalid" not in broker.log_text()
        assert "offset index file" not in broker.log_text(), "an index is missing or damaged"
