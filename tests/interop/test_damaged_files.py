"""Files that are damaged or lost between a stop and the next start: nothing acknowledged is deleted, nothing aborted is
shown, and whatever stops the start is named.
"""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer
from tests.interop.brokers import RunningBroker
from tests.interop.librdkafka import create_topic, flush, produce_values, read_records, wait_until
from tests.interop.transaction_clients import TRANSACTION_BROKER, Transactional, committed_values, numbers

INDEXES = {
    "all indexes": (".index", ".timeindex", ".txnindex"),
    "transaction indexes alone": (".txnindex",),
    "indexes and producer snapshots": (".index", ".timeindex", ".txnindex", ".snapshot"),
}


def write_transactions(bootstrap: str, topic: str, transactional_id: str) -> list[str]:
    """Transactions over several segments; the first to begin is aborted last. Returns the committed values."""
    create_topic(bootstrap, topic, config={"segment.bytes": str(1 << 20)})
    padding = "x" * 100_000
    longest = Transactional(bootstrap, f"{transactional_id}-longest")
    longest.begin()
    longest.send(topic, ["aborted at the end"])
    producer = Transactional(bootstrap, transactional_id)
    for number in range(10):
        producer.begin()
        producer.send(topic, [f"aborted {number} {part} {padding}" for part in range(4)])
        producer.abort()
        producer.transaction(topic, [str(number)])
    longest.abort()
    return list(numbers(0, 10))


@pytest.mark.parametrize("suffixes", INDEXES.values(), ids=INDEXES)
@pytest.mark.parametrize("stop", ["clean", "kill"])
def test_aborted_records_stay_hidden_when_the_indexes_are_deleted(
    own_broker: Callable[..., RunningBroker],
    topic_name: str,
    transactional_id: str,
    suffixes: tuple[str, ...],
    stop: str,
) -> None:
    broker = own_broker(set=TRANSACTION_BROKER)
    committed = write_transactions(broker.bootstrap, topic_name, transactional_id)
    if stop == "clean":
        broker.stop()
    else:
        broker.kill()
    folder = broker.data_dir / f"{topic_name}-0"
    assert len(list(folder.glob("*.log"))) >= 4
    for path in [path for path in folder.iterdir() if path.suffix in suffixes]:
        path.unlink()
    broker.start()
    assert committed_values(broker.bootstrap, topic_name) == committed


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-5], lambda data: b"\x55" * len(data)], ids=["cut", "garbage"]
)
def test_aborted_records_stay_hidden_when_the_transaction_indexes_are_damaged(
    own_broker: Callable[..., RunningBroker],
    topic_name: str,
    transactional_id: str,
    damage: Callable[[bytes], bytes],
) -> None:
    broker = own_broker(set=TRANSACTION_BROKER)
    committed = write_transactions(broker.bootstrap, topic_name, transactional_id)
    broker.stop()
    indexes = [p for p in (broker.data_dir / f"{topic_name}-0").glob("*.txnindex") if p.stat().st_size]
    assert len(indexes) >= 3
    for path in indexes:
        path.write_bytes(damage(path.read_bytes()))
    broker.start()
    assert committed_values(broker.bootstrap, topic_name) == committed


VALUES = [str(number).encode() for number in range(100)]


def flip_bit(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def files_in(folder: Path, suffix: str = "") -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.name.endswith(suffix)}


def error_message(broker: RunningBroker) -> str:
    """The message of a start that fails: one line, no traceback, and the same for the second start."""
    said = []
    for _ in range(2):
        before = len(broker.log_text())
        with pytest.raises(RuntimeError, match="ended with code 2 before it was ready"):
            broker.start()
        output = broker.log_text()[before:]
        assert "Traceback" not in output
        (line,) = [
            line for line in output.splitlines() if line.startswith("ottla serve: the broker cannot start")
        ]
        said.append(line)
    assert said[0] == said[1]
    return said[0]


@pytest.fixture
def stopped(own_broker: Callable[..., RunningBroker], topic_name: str) -> RunningBroker:
    """A broker that was stopped cleanly after 100 acknowledged records, with a metadata snapshot."""
    broker = own_broker(set={"metadata.log.max.record.bytes.between.snapshots": "500"})
    create_topic(broker.bootstrap, topic_name)
    produce_values(broker.bootstrap, topic_name, VALUES)
    folder = broker.data_dir / "__cluster_metadata-0"
    wait_until(lambda: any(folder.glob("*.checkpoint")), "there is a snapshot of the metadata")
    assert broker.stop() == 0
    return broker


def check_all_is_there(broker: RunningBroker, topic: str) -> None:
    broker.start()
    assert [record.value() for record in read_records(broker.bootstrap, topic, 100)] == VALUES
    assert not list(broker.data_dir.glob("*-stray"))


@pytest.mark.parametrize("where", [0.2, 0.5, 0.9, 1.0])
def test_a_metadata_log_with_one_flipped_bit_stops_the_start(
    stopped: RunningBroker, topic_name: str, where: float
) -> None:
    (path,) = (stopped.data_dir / "__cluster_metadata-0").glob("*.log")
    position = int((path.stat().st_size - 1) * where)
    flip_bit(path, position)
    message = error_message(stopped)
    assert f"{path} is damaged at position " in message
    assert "which is offset " in message
    assert "Restore the directory of the metadata log from a backup" in message
    flip_bit(path, position)
    check_all_is_there(stopped, topic_name)


def test_a_metadata_snapshot_with_one_flipped_bit_stops_the_start(
    stopped: RunningBroker, topic_name: str
) -> None:
    path = max((stopped.data_dir / "__cluster_metadata-0").glob("*.checkpoint"))
    flip_bit(path, path.stat().st_size // 2)
    message = error_message(stopped)
    assert f"the metadata snapshot {path} is damaged at position " in message
    assert "Restore it from a backup" in message
    flip_bit(path, path.stat().st_size // 2)
    check_all_is_there(stopped, topic_name)


@pytest.mark.parametrize("kept", [None, "quorum-state", "partition.metadata"])
def test_a_missing_metadata_log_stops_the_start(
    stopped: RunningBroker, topic_name: str, tmp_path: Path, kept: str | None
) -> None:
    folder, backup = stopped.data_dir / "__cluster_metadata-0", tmp_path / "backup"
    folder.rename(backup)
    if kept is not None:
        folder.mkdir()
        (folder / kept).write_bytes((backup / kept).read_bytes())
    message = error_message(stopped)
    assert f"the metadata log {folder} is missing or empty" in message
    assert f"{topic_name}-0" in message
    if kept is not None:
        (folder / kept).unlink()
        folder.rmdir()
    backup.rename(folder)
    check_all_is_there(stopped, topic_name)


@pytest.mark.parametrize("name", ["meta.properties", "__cluster_metadata-0/quorum-state"])
def test_a_file_of_foreign_bytes_that_stops_the_start_is_named(
    stopped: RunningBroker, topic_name: str, name: str
) -> None:
    path = stopped.data_dir / name
    good = path.read_bytes()
    path.write_bytes(b"\xff\xfe" + good)
    assert str(path) in error_message(stopped)
    path.write_bytes(good)
    check_all_is_there(stopped, topic_name)


def test_missing_meta_properties_and_those_of_another_cluster_stop_the_start(
    stopped: RunningBroker, topic_name: str
) -> None:
    path = stopped.data_dir / "meta.properties"
    good = path.read_text()
    path.unlink()
    assert f"{path} is missing, but the directory has data" in error_message(stopped)
    assert not path.exists()
    path.write_text(good)
    check_all_is_there(stopped, topic_name)


def test_a_folder_with_the_id_of_another_topic_is_renamed_and_can_be_restored(
    stopped: RunningBroker, topic_name: str
) -> None:
    folder = stopped.data_dir / f"{topic_name}-0"
    path = folder / "partition.metadata"
    good = path.read_bytes()
    path.write_bytes(good[:-2] + (b"AA" if good[-2:] != b"AA" else b"Ag"))
    before = files_in(folder, ".log")
    stopped.start()
    # Clients can write now, as if the topic were empty.
    (delivered,) = produce_values(stopped.bootstrap, topic_name, [b"new"])
    assert delivered.offset() == 0
    (stray,) = stopped.data_dir.glob("*-stray")
    assert re.fullmatch(rf"{topic_name}-0\.[0-9a-f]{{32}}-stray", stray.name)
    assert str(stray) in stopped.log_text()
    stopped.restart()
    assert files_in(stray, ".log") == before
    stopped.stop()
    folder.rename(stopped.data_dir.parent / "given-up")
    (stray / "partition.metadata").write_bytes(good)
    stray.rename(folder)
    check_all_is_there(stopped, topic_name)


def test_a_folder_that_is_not_in_the_metadata_is_renamed(stopped: RunningBroker, topic_name: str) -> None:
    unknown = f"{topic_name}-unknown"
    shutil.copytree(stopped.data_dir / f"{topic_name}-0", stopped.data_dir / f"{unknown}-0")
    before = files_in(stopped.data_dir / f"{unknown}-0", ".log")
    stopped.start()
    (stray,) = stopped.data_dir.glob("*-stray")
    assert stray.name.startswith(f"{unknown}-0.")
    (delivered,) = produce_values(stopped.bootstrap, unknown, [b"new"])  # creates the topic
    assert delivered.offset() == 0
    stopped.restart()
    assert files_in(stray, ".log") == before
    assert [record.value() for record in read_records(stopped.bootstrap, unknown, 1)] == [b"new"]
    assert [record.value() for record in read_records(stopped.bootstrap, topic_name, 100)] == VALUES


def test_a_log_with_damaged_flushed_records_is_offline_and_kept(
    stopped: RunningBroker, topic_name: str
) -> None:
    other = create_other_topic(stopped, f"{topic_name}-other")
    stopped.kill()
    (path,) = (stopped.data_dir / f"{topic_name}-0").glob("*.log")
    flip_bit(path, 80)
    damaged = path.read_bytes()
    stopped.start()
    assert [record.value() for record in read_records(stopped.bootstrap, other, 1)] == [b"other"]
    assert f"{path} is damaged at position 0, which is offset 0" in stopped.log_text()
    producer = Producer({"bootstrap.servers": stopped.bootstrap, "message.timeout.ms": 1000})
    errors: list[KafkaError | None] = []
    producer.produce(topic_name, b"new", on_delivery=lambda error, _: errors.append(error))
    flush(producer)
    assert errors[0] is not None
    stopped.restart()
    assert path.read_bytes() == damaged
    stopped.stop()
    flip_bit(path, 80)
    check_all_is_there(stopped, topic_name)


def create_other_topic(broker: RunningBroker, name: str) -> str:
    broker.start()
    create_topic(broker.bootstrap, name)
    produce_values(broker.bootstrap, name, [b"other"])
    return name
