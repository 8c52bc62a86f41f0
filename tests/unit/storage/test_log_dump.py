import uuid

import pytest
from tests.unit.storage.log_builder import NOW_MS, SMALL, batch, fill, marker, open_log

from ottla.env.real_disk import RealDisk
from ottla.model.ids import TopicPartition, uuid_to_string
from ottla.protocol.group_records.codec import encode_key, encode_value
from ottla.protocol.group_records.records import OffsetCommitKey, OffsetCommitValue
from ottla.records.header import read_header
from ottla.records.records import Record, build_batch
from ottla.storage.checkpoints import write_offset_checkpoint
from ottla.storage.dump import UnknownFileError, dump_file


def dump(path, **options):
    return list(dump_file(RealDisk(), str(path), **options))


@pytest.fixture
def directory(tmp_path):
    log = open_log(tmp_path / "orders-0", SMALL, topic_id=uuid.UUID(int=1))
    log.append([batch(0, producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)], NOW_MS)
    log.append([marker(1, 5, commit=False)], NOW_MS)
    fill(log, 30)
    log.close(clean=True)
    return tmp_path / "orders-0"


def test_batches_are_dumped_with_headers_and_optionally_records(directory):
    path = directory / f"{0:020d}.log"
    entries = dump(path)
    assert {entry["kind"] for entry in entries} == {"batch"}
    assert entries[0]["base_offset"] == 0
    assert entries[0]["is_transactional"]
    assert entries[0]["compression"] == "none"
    assert all(entry["is_valid"] for entry in entries)
    assert entries[1]["position"] == entries[0]["size"]
    entries = dump(path, records=True)
    assert entries[1] == {
        "kind": "record",
        "offset": 0,
        "timestamp": NOW_MS,
        "key": None,
        "value": b"0" * 20,
        "headers": [],
    }
    assert entries[3]["control_type"] == "ABORT"


def test_records_of_coordinators_are_dumped_as_fields(tmp_path):
    path = tmp_path / "__consumer_offsets-7"
    key = OffsetCommitKey(group="g", topic="orders", partition=3)
    value = OffsetCommitValue(offset=5, metadata="note", commit_timestamp=NOW_MS, topic_id=uuid.UUID(int=1))
    keys_and_values = [
        (encode_key(key), encode_value(value)),
        (encode_key(key), None),
        (b"\x00\x63of a newer release", b"?"),
        (encode_key(key), b"\x00\x04"),
    ]
    data = build_batch(
        [Record(offset, NOW_MS, *each) for offset, each in enumerate(keys_and_values)], leader_epoch=0
    )
    log = open_log(path, SMALL)
    log.append([(read_header(data), [data])], NOW_MS)
    log.close(clean=True)
    _, committed, deleted, newer, damaged = dump(path / f"{0:020d}.log", records=True)
    assert (committed["type"], committed["key"]) == (
        "OffsetCommit",
        {"group": "g", "topic": "orders", "partition": 3},
    )
    assert committed["value"] == {
        "offset": 5,
        "leader_epoch": -1,
        "metadata": "note",
        "commit_timestamp": NOW_MS,
        "topic_id": uuid_to_string(uuid.UUID(int=1)),
    }
    assert deleted["value"] is None
    assert (newer["key"], newer["value"]) == (b"\x00\x63of a newer release", b"?")
    assert "OffsetCommitValue of version 4 cannot be read" in damaged["reason"]


def test_damage_is_dumped_with_its_position(directory):
    path = directory / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data[:-5])
    entries = dump(path, records=True)
    assert not entries[0]["is_valid"]
    assert entries[-1]["kind"] == "damage"
    assert entries[-1]["position"] + entries[-1]["size"] == len(data) - 5


def test_indexes_are_dumped_without_unused_space(directory):
    offsets = dump(directory / f"{0:020d}.index")
    assert len(offsets) > 5
    batches = {entry["position"]: entry for entry in dump(directory / f"{0:020d}.log")}
    assert all(batches[entry["position"]]["last_offset"] == entry["offset"] for entry in offsets)
    times = dump(directory / f"{0:020d}.timeindex")
    assert times[-1]["timestamp"] == NOW_MS + 1
    with (directory / f"{0:020d}.index").open("ab") as index:
        index.write(bytes(800))
    assert dump(directory / f"{0:020d}.index") == offsets
    with (directory / f"{0:020d}.index").open("ab") as index:
        index.write(b"x")
    assert dump(directory / f"{0:020d}.index")[-1]["kind"] == "damage"


def test_checkpoints_and_snapshots_are_dumped(directory, tmp_path):
    assert dump(directory / f"{0:020d}.txnindex") == [
        {
            "kind": "aborted transaction",
            "producer_id": 5,
            "first_offset": 0,
            "last_offset": 1,
            "last_stable_offset": 2,
        }
    ]
    [producer] = dump(sorted(directory.glob("*.snapshot"))[-1])
    assert (producer["producer_id"], producer["coordinator_epoch"]) == (5, 3)
    assert dump(directory / "leader-epoch-checkpoint") == [
        {"kind": "leader epoch", "epoch": 0, "start_offset": 0}
    ]
    assert dump(directory / "partition.metadata") == [
        {"kind": "partition", "topic_id": "AAAAAAAAAAAAAAAAAAAAAQ"}
    ]
    path = tmp_path / "recovery-point-offset-checkpoint"
    write_offset_checkpoint(RealDisk(), str(path), {TopicPartition("t", 3): 9})
    assert dump(path) == [{"kind": "offset", "topic": "t", "partition": 3, "offset": 9}]
    path.write_text("7\n")
    assert "version '7'" in dump(path)[0]["reason"]


def test_a_file_with_an_unknown_name_is_rejected(tmp_path):
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(UnknownFileError, match=r"notes\.txt has no name of Kafka's files"):
        dump(tmp_path / "notes.txt")
