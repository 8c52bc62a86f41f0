import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.storage.log_builder import NOW_MS, SMALL, batch, fill, marker, open_log, sim_disk

from ottla.core.partition.producers import ProducerEntry, ProducerStateTable
from ottla.env.real_disk import RealDisk
from ottla.storage.producer_snapshots import CorruptSnapshotError, decode_snapshot, encode_snapshot
from ottla.storage.producer_state import replay_batch


def sequence_of(log, producer_id: int) -> int:
    return next(entry.last_sequence for entry in log.producers.entries() if entry.producer_id == producer_id)


@pytest.mark.parametrize("stop", ["clean", "kill"])
def test_producers_are_known_after_a_restart(tmp_path, stop):
    log = open_log(tmp_path / "orders-0")
    for number in range(40):
        header = batch(
            log.log_end_offset, 2, producer_id=number % 3, producer_epoch=1, base_sequence=number // 3 * 2
        )
        log.append([header], NOW_MS)
    before = sorted(log.producers.entries())
    log.close(clean=stop == "clean")
    log = open_log(tmp_path / "orders-0", clean_shutdown=stop == "clean", recovery_point=log.recovery_point)
    assert sorted(log.producers.entries()) == before


def test_after_a_clean_shutdown_producers_are_loaded_from_the_snapshot_alone():
    disk = sim_disk()
    log = open_log("/data/orders-0", disk=disk)
    fill(log, 40, producer_id=9, producer_epoch=0, base_sequence=0)
    log.close(clean=True)
    disk.stats.bytes_read = 0
    log = open_log("/data/orders-0", disk=disk, clean_shutdown=True, recovery_point=80)
    assert len(log.producers) == 1
    assert disk.stats.bytes_read < 200


def test_an_older_snapshot_and_the_log_are_used_instead_of_a_damaged_snapshot(tmp_path, caplog):
    log = open_log(tmp_path / "orders-0")
    for number in range(40):
        log.append([batch(number, producer_id=1, producer_epoch=0, base_sequence=number, size=100)], NOW_MS)
    log.close(clean=True)
    newest = tmp_path / "orders-0" / f"{40:020d}.snapshot"
    newest.write_bytes(newest.read_bytes()[:-1])
    log = open_log(tmp_path / "orders-0", clean_shutdown=True, recovery_point=40)
    assert sequence_of(log, 1) == 39
    assert "removing the producer snapshot" in caplog.text
    assert not newest.exists()


def test_there_is_one_snapshot_per_segment_and_one_at_the_log_end(tmp_path):
    log = open_log(tmp_path / "orders-0")
    fill(log, 60)
    for stop in range(3):
        fill(log, 1 + stop)
        log.close(clean=True)
        log = open_log(tmp_path / "orders-0", clean_shutdown=True, recovery_point=log.log_end_offset)
    taken = {int(path.name[:20]) for path in (tmp_path / "orders-0").glob("*.snapshot")}
    assert taken == {*log.segments.base_offsets[1:], log.log_end_offset}


def test_truncation_restores_the_producers_at_the_offset(tmp_path):
    log = open_log(tmp_path / "orders-0")
    for number in range(40):
        log.append([batch(number, producer_id=1, producer_epoch=0, base_sequence=number, size=100)], NOW_MS)
    assert len(log.segments) > 3
    log.truncate_to(11, NOW_MS)
    assert sequence_of(log, 1) == 10
    assert log.log_end_offset == 11
    log.truncate_fully_and_start_at(100, NOW_MS)
    assert len(log.producers) == 0
    assert not list((tmp_path / "orders-0").glob("*.snapshot"))


def test_a_snapshot_survives_encoding_and_decoding():
    entries = [ProducerEntry(1, 2, 3, 4, 5, 6, 7, 8), ProducerEntry(2**62, 0, -1, -1, 0, -1, -1, -1)]
    assert decode_snapshot(encode_snapshot(entries)) == entries
    assert len(encode_snapshot([])) == 10


@examples(100)
@given(position=st.integers(0, 101), bit=st.integers(0, 7), cut=st.integers(0, 101))
def test_a_damaged_snapshot_is_detected(position, bit, cut):
    data = bytearray(encode_snapshot([ProducerEntry(1, 2, 3, 4, 5, 6, 7, 8)] * 2))
    with pytest.raises(CorruptSnapshotError):
        decode_snapshot(bytes(data[: min(cut, len(data) - 1)]))
    data[position] ^= 1 << bit
    with pytest.raises(CorruptSnapshotError):
        decode_snapshot(bytes(data))


def transaction(log, producer_id: int, records: int, *, commit: bool) -> None:
    for _ in range(records):
        log.append(
            [batch(log.log_end_offset, producer_id=producer_id, producer_epoch=0, transactional=True)], NOW_MS
        )
    log.append([marker(log.log_end_offset, producer_id, commit=commit)], NOW_MS)


def test_aborted_transactions_are_found_by_offset_range(tmp_path):
    log = open_log(tmp_path / "orders-0")
    transaction(log, 1, 3, commit=False)  # offsets 0 to 3
    transaction(log, 2, 3, commit=True)  # 4 to 7
    transaction(log, 3, 40, commit=False)  # 8 to 48, over several segments
    transaction(log, 4, 1, commit=False)  # 49, 50
    everything = [(1, 0), (3, 8), (4, 49)]
    assert log.aborted_transactions(0, 51) == everything
    assert log.aborted_transactions(4, 8) == []
    assert log.aborted_transactions(0, 4) == [(1, 0)]
    assert log.aborted_transactions(20, 25) == [(3, 8)]
    log.close(clean=True)
    log = open_log(tmp_path / "orders-0", clean_shutdown=True, recovery_point=51)
    assert log.aborted_transactions(0, 51) == everything


def test_recovery_rebuilds_the_transaction_index(tmp_path):
    log = open_log(tmp_path / "orders-0")
    for producer_id in range(8):
        transaction(log, producer_id, 9, commit=producer_id % 2 == 0)
    expected = log.aborted_transactions(0, 80)
    assert len(expected) == 4
    log.close(clean=False)
    for path in (tmp_path / "orders-0").glob("*.txnindex"):
        path.unlink()
    assert open_log(tmp_path / "orders-0").aborted_transactions(0, 80) == expected


def log_with_aborted_transactions(directory, disk=None):
    """A cleanly closed log; some transactions begin in one segment and end in another."""
    log = open_log(directory, disk=disk)
    for offset in range(4):  # a transaction of producer 90, which is aborted at the end
        log.append([batch(offset, producer_id=90, producer_epoch=0, transactional=True)], NOW_MS)
    for producer_id in range(12):
        transaction(log, producer_id, 7 + producer_id, commit=producer_id % 3 == 0)
    log.append([marker(log.log_end_offset, 90, commit=False)], NOW_MS)
    log.close(clean=True)
    assert len(log.segments) > 4
    assert len(log.aborted_transactions(0, log.log_end_offset)) == 9
    return log


def content_of(paths) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in paths}


@pytest.mark.parametrize(
    "removed", [["*.txnindex"], ["*.index", "*.timeindex", "*.txnindex"], ["*index", "*.snapshot"]]
)
@pytest.mark.parametrize("stop", ["clean", "kill"])
def test_missing_transaction_indexes_are_rebuilt_identically(tmp_path, removed, stop):
    directory = tmp_path / "orders-0"
    log = log_with_aborted_transactions(directory)
    end = log.log_end_offset
    before = content_of(directory.glob("*.txnindex"))
    for path in [path for pattern in removed for path in directory.glob(pattern)]:
        path.unlink()
    reopened = open_log(directory, clean_shutdown=stop == "clean", recovery_point=end)
    assert content_of(directory.glob("*.txnindex")) == before
    assert reopened.aborted_transactions(0, end) == log.aborted_transactions(0, end)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: data + b"\0",
        lambda data: b"\0\1" + data[2:],
        lambda data: b"\xff" * len(data),
        lambda data: bytes(len(data)),
        lambda data: data[34:] + data[:34],
        lambda data: data[:10] + data[18:26] + data[10:18] + data[26:],  # first and last offset swapped
        lambda data: data[:18] + b"\0\1" + data[20:],  # ends beyond the segment
    ],
    ids=["cut", "one-byte-more", "version", "garbage", "zeros", "order", "swapped", "beyond"],
)
def test_a_damaged_transaction_index_is_rebuilt_when_the_log_is_opened(tmp_path, caplog, damage):
    directory = tmp_path / "orders-0"
    log = log_with_aborted_transactions(directory)
    end = log.log_end_offset
    before = content_of(directory.glob("*.txnindex"))
    path = max(directory.glob("*.txnindex"), key=lambda path: path.stat().st_size)
    path.write_bytes(damage(before[path.name]))
    reopened = open_log(directory, clean_shutdown=True, recovery_point=end)
    assert f"rebuilding the transaction index of {path.with_suffix('.log')}" in caplog.text
    assert content_of(directory.glob("*.txnindex")) == before
    assert reopened.aborted_transactions(0, end) == log.aborted_transactions(0, end)


def test_a_rebuilt_transaction_index_survives_a_power_loss():
    for seed in range(20):
        disk = sim_disk(seed)
        log = log_with_aborted_transactions("/data/orders-0", disk)
        end = log.log_end_offset
        for name in disk.list_dir("/data/orders-0"):
            if name.endswith(".txnindex"):
                disk.remove(f"/data/orders-0/{name}")
        disk.sync_dir("/data/orders-0")
        open_log("/data/orders-0", disk=disk, clean_shutdown=True, recovery_point=end)
        disk.crash()
        log = open_log("/data/orders-0", disk=disk.reopen(), recovery_point=end)
        assert len(log.aborted_transactions(0, end)) == 9


def test_empty_transaction_indexes_are_created_once_in_a_directory_of_kafka(tmp_path):
    log = open_log(tmp_path / "orders-0")
    fill(log, 60)
    log.close(clean=True)
    for path in (tmp_path / "orders-0").glob("*.txnindex"):
        path.unlink()
    for _ in range(2):
        log = open_log(tmp_path / "orders-0", clean_shutdown=True, recovery_point=120)
        indexes = list((tmp_path / "orders-0").glob("*.txnindex"))
        assert len(indexes) == len(log.segments) > 1
        assert not any(path.stat().st_size for path in indexes)


def test_truncation_removes_aborted_transactions_from_the_index(tmp_path):
    log = open_log(tmp_path / "orders-0")
    transaction(log, 1, 3, commit=False)
    transaction(log, 2, 3, commit=False)
    log.truncate_to(7, NOW_MS)  # removes the marker of the second transaction
    assert log.aborted_transactions(0, 7) == [(1, 0)]
    assert log.producers.first_unstable_offset() == 0
    log.producers.on_high_watermark(7)
    assert log.producers.first_unstable_offset() == 4


@examples(40)
@given(
    steps=st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from(["write", "write", "commit", "abort", "roll", "flush"])),
        max_size=60,
    ),
    stop=st.sampled_from(["clean", "kill"]),
)
def test_producers_and_aborted_transactions_match_the_batches_after_any_stop(steps, stop):
    disk = sim_disk()
    log = open_log("/data/orders-0", SMALL, disk=disk)
    oracle, sequences = ProducerStateTable(), [0] * 4
    for producer_id, step in steps:
        if step == "roll":
            log.roll(NOW_MS)
        elif step == "flush":
            log.flush()
        else:
            if step == "write":
                header, parts = batch(
                    log.log_end_offset,
                    producer_id=producer_id,
                    producer_epoch=0,
                    base_sequence=sequences[producer_id],
                    transactional=True,
                )
                sequences[producer_id] += 1
            else:
                header, parts = marker(log.log_end_offset, producer_id, commit=step == "commit")
            log.append([(header, parts)], NOW_MS)
            replay_batch(oracle, header, b"".join(parts), None)
    aborted = log.aborted_transactions(0, log.log_end_offset)
    assert sorted(log.producers.entries()) == sorted(oracle.entries())
    log.close(clean=stop == "clean")
    log = open_log(
        "/data/orders-0",
        SMALL,
        disk=disk,
        clean_shutdown=stop == "clean",
        recovery_point=log.recovery_point,
    )
    assert sorted(log.producers.entries()) == sorted(oracle.entries())
    assert log.aborted_transactions(0, log.log_end_offset) == aborted


@pytest.mark.parametrize("position", [0, 1, 2])
def test_an_append_that_cannot_read_the_transaction_index_leaves_the_log_as_it_was(
    tmp_path, monkeypatch, position
):
    log = open_log(tmp_path / "orders-0")
    log.append(
        [
            batch(0, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True),
            marker(1, 7, commit=False),
        ],
        NOW_MS,
    )
    log.append([batch(2, producer_id=7, producer_epoch=0, base_sequence=1, transactional=True)], NOW_MS)
    log.close(clean=True)
    log = open_log(tmp_path / "orders-0", clean_shutdown=True, recovery_point=3)
    batches = [batch(3 + index) for index in range(3)]
    batches[position] = marker(3 + position, 7, commit=False)
    before = log.producers.entries(), log.size_bytes

    def fail(path):
        raise OSError(errno.EMFILE, "too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(RealDisk, "read_bytes", lambda disk, path: fail(path))
        with pytest.raises(OSError, match="too many open files"):
            log.append(batches, NOW_MS)
    assert (log.producers.entries(), log.size_bytes) == before
    assert log.log_end_offset == 3
    log.append(batches, NOW_MS)
    assert log.aborted_transactions(0, 6) == [(7, 0), (7, 2)]
