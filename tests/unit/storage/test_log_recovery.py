import logging
import shutil

import pytest
from tests.unit.storage.log_builder import (
    NOW_MS,
    SMALL,
    batch,
    fill,
    offsets_of,
    open_log,
    read_all,
    sim_disk,
)

from ottla.model.errors import KafkaError
from ottla.records.header import read_header
from ottla.storage.damaged_log import DamagedLogError
from ottla.storage.log_config import LogConfig


def test_a_torn_last_batch_is_truncated(tmp_path, caplog):
    log = open_log(tmp_path / "orders-0", LogConfig())
    written = fill(log, 3)
    log.close(clean=False)
    path = tmp_path / "orders-0" / "00000000000000000000.log"
    whole = path.read_bytes()
    keep = len(whole) - len(written[-1])
    for size in range(keep + 1, len(whole)):
        path.write_bytes(whole[:size])
        caplog.clear()
        with caplog.at_level(logging.WARNING, "ottla.storage"):
            recovered = open_log(tmp_path / "orders-0", LogConfig())
        assert recovered.log_end_offset == 4
        assert path.read_bytes() == whole[:keep]
        assert caplog.messages == [
            f"cut {size - keep} bytes from the end of {path} at position {keep}: the batch there is torn or damaged"
        ]
        recovered.append([batch(4, 2)], NOW_MS)
        assert offsets_of(read_all(recovered)) == list(range(6))
        recovered.close(clean=False)


def test_a_flipped_bit_in_the_last_batch_truncates_it(tmp_path):
    log = open_log(tmp_path / "orders-0", LogConfig())
    written = fill(log, 2)
    log.close(clean=False)
    path = tmp_path / "orders-0" / "00000000000000000000.log"
    whole = path.read_bytes()
    keep = len(written[0])
    # The checksum does not cover the leader epoch (bytes 12 to 15), which the leader sets.
    for position in [*range(12), *range(16, len(written[1]))]:
        data = bytearray(whole)
        data[keep + position] ^= 0x80
        path.write_bytes(data)
        recovered = open_log(tmp_path / "orders-0", LogConfig())
        # A greater base offset could be a gap of compaction; a smaller one is out of order.
        assert recovered.log_end_offset == 2 or (position < 8 and recovered.log_end_offset > 4), position
        recovered.close(clean=False)


def test_zeros_at_the_end_after_a_power_loss_are_truncated(tmp_path):
    log = open_log(tmp_path / "orders-0", LogConfig())
    written = fill(log, 2)
    log.close(clean=False)
    path = tmp_path / "orders-0" / "00000000000000000000.log"
    path.write_bytes(path.read_bytes() + bytes(5000))
    recovered = open_log(tmp_path / "orders-0", LogConfig())
    assert path.read_bytes() == b"".join(written)
    assert recovered.log_end_offset == 4


def test_segments_after_a_damaged_one_are_removed(tmp_path):
    log = open_log(tmp_path / "orders-0")
    fill(log, 60)
    bases = log.segments.base_offsets
    log.close(clean=False)
    damaged = tmp_path / "orders-0" / f"{bases[1]:020d}.log"
    data = bytearray(damaged.read_bytes())
    data[200] ^= 1
    damaged.write_bytes(data)
    recovered = open_log(tmp_path / "orders-0")
    assert recovered.segments.base_offsets == bases[:2]
    assert bases[1] < recovered.log_end_offset < bases[2]
    assert offsets_of(read_all(recovered)) == list(range(recovered.log_end_offset))
    left = {path.name[:20] for path in (tmp_path / "orders-0").glob("0*.log*")}
    assert left == {f"{base:020d}" for base in bases[:2]}


def test_damage_below_the_recovery_point_is_an_error_and_nothing_is_truncated(tmp_path):
    log = open_log(tmp_path / "orders-0", LogConfig())
    written = fill(log, 20)
    log.close(clean=False)
    path = tmp_path / "orders-0" / f"{0:020d}.log"
    good = path.read_bytes()
    flushed = sum(map(len, written[:10]))
    for position in range(0, len(good), 7):
        damaged = bytearray(good)
        damaged[position] ^= 1 << position % 8
        path.write_bytes(damaged)
        try:
            log = open_log(tmp_path / "orders-0", LogConfig(), recovery_point=20)
        except DamagedLogError as error:
            reason = error.message
        else:
            reason = ""
        if reason:
            assert position < flushed
            assert f"{path} is damaged at position" in reason
            assert "recovery-point-offset-checkpoint" in reason
            assert path.read_bytes() == damaged
        else:
            # No checksum covers offset and leader epoch, so a change of these may go unnoticed.
            assert path.stat().st_size >= flushed
    path.write_bytes(good)
    assert open_log(tmp_path / "orders-0", LogConfig(), recovery_point=20).log_end_offset == 40


def test_segments_after_damage_below_the_recovery_point_are_kept(tmp_path):
    log = open_log(tmp_path / "orders-0")
    fill(log, 60)
    log.close(clean=False)
    paths = sorted((tmp_path / "orders-0").glob("*.log"))
    damaged = paths[1].read_bytes()[:-1]
    paths[1].write_bytes(damaged)
    with pytest.raises(DamagedLogError, match=f"{paths[1]} is damaged at position"):
        open_log(tmp_path / "orders-0", recovery_point=int(paths[2].stem) - 1)
    assert sorted((tmp_path / "orders-0").glob("*.log")) == paths
    assert paths[1].read_bytes() == damaged


def test_a_damaged_compacted_segment_replaces_nothing(tmp_path):
    log = open_log(tmp_path / "orders-0")
    fill(log, 60)
    log.close(clean=False)
    first, second, *_ = sorted((tmp_path / "orders-0").glob("*.log"))
    swap = tmp_path / "orders-0" / f"{first.name}.swap"
    # Compaction has merged the first two segments and renamed the second.
    data = bytearray(first.read_bytes() + second.read_bytes())
    data[-3] ^= 1
    swap.write_bytes(data)
    second.rename(f"{second}.deleted")
    before = sorted((tmp_path / "orders-0").iterdir())
    with pytest.raises(KafkaError, match=f"{swap} is damaged at position"):
        open_log(tmp_path / "orders-0")
    assert sorted((tmp_path / "orders-0").iterdir()) == before


def test_recovery_starts_at_the_segment_with_the_recovery_point(tmp_path):
    log = open_log(tmp_path / "orders-0")
    fill(log, 60)
    bases = log.segments.base_offsets
    log.close(clean=False)
    flushed = tmp_path / "orders-0" / f"{bases[0]:020d}.log"
    data = bytearray(flushed.read_bytes())
    data[200] ^= 1  # recovery of this segment would find the damage
    flushed.write_bytes(data)
    recovered = open_log(tmp_path / "orders-0", recovery_point=bases[1])
    assert recovered.log_end_offset == 120
    assert recovered.recovery_point == bases[1]


def test_a_log_ends_where_the_end_of_a_segment_is_missing(tmp_path, caplog):
    log = open_log(tmp_path / "orders-0")
    written = fill(log, 60)
    bases = log.segments.base_offsets
    log.close(clean=False)
    path = tmp_path / "orders-0" / f"{bases[1]:020d}.log"
    path.write_bytes(path.read_bytes()[: -len(written[0])])  # at a batch boundary
    recovered = open_log(tmp_path / "orders-0")
    assert recovered.log_end_offset == bases[2] - 2
    assert offsets_of(read_all(recovered)) == list(range(bases[2] - 2))
    assert "the log before them ends at offset" in caplog.text


@pytest.mark.parametrize("policy", ["compact", "delete", "compact,delete"])
def test_gaps_between_segments_are_legal_with_any_cleanup_policy(tmp_path, policy):
    config = LogConfig(cleanup_policy=frozenset(policy.split(",")), max_index_bytes=240)
    log = open_log(tmp_path / "orders-0", config)
    log.append([batch(0)], NOW_MS)
    log.roll(NOW_MS, 50)
    log.append([batch(50)], NOW_MS)
    log.close(clean=False)
    assert offsets_of(read_all(open_log(tmp_path / "orders-0", config))) == [0, 50]


def test_a_compacted_log_keeps_its_end_without_a_recovery_point(tmp_path):
    log = open_log(tmp_path / "orders-0")
    fill(log, 60)
    log.flush()
    bases = log.segments.base_offsets
    log.close(clean=False)
    for base in bases[1:-1]:  # as if compaction had kept the first batch of each segment
        path = tmp_path / "orders-0" / f"{base:020d}.log"
        data = path.read_bytes()
        path.write_bytes(data[: read_header(data).size])
    recovered = open_log(tmp_path / "orders-0")
    assert recovered.log_end_offset == 120
    assert recovered.segments.base_offsets == bases


def marks(folder):
    return [int(path.name[:20]) for path in sorted(folder.glob("*.unflushed"))]


def test_a_segment_is_marked_until_the_previous_one_is_flushed(tmp_path):
    folder = tmp_path / "orders-0"
    log = open_log(folder)
    fill(log, 60)
    bases = log.segments.base_offsets
    assert marks(folder) == bases[1:]
    work = log.prepare_flush(bases[2])
    assert work is not None
    work.sync()
    log.complete_flush(work)
    assert marks(folder) == bases[3:]
    log.close(clean=False)
    log = open_log(folder)
    assert marks(folder) == bases[1:][2:]
    log.flush()
    assert marks(folder) == []
    log.roll(NOW_MS)
    assert marks(folder) == [], "all before it is flushed"


def test_marks_are_removed_with_their_segments(tmp_path):
    folder = tmp_path / "orders-0"
    log = open_log(folder)
    fill(log, 60)
    bases = log.segments.base_offsets
    log.delete_records_before(bases[2])
    log.delete_old_segments(NOW_MS, 120)
    assert marks(folder) == bases[3:], "nothing comes before the first segment"
    log.truncate_to(bases[-1], NOW_MS)
    log.truncate_to(bases[-2], NOW_MS)
    assert marks(folder) == bases[3:-1]
    log.truncate_fully_and_start_at(500, NOW_MS)
    assert marks(folder) == []


def test_a_log_truncated_within_a_batch_continues_at_that_offset_after_a_kill(tmp_path):
    log = open_log(tmp_path / "orders-0")
    fill(log, 4, count=5)
    log.truncate_to(13, NOW_MS)
    log.close(clean=False)
    log = open_log(tmp_path / "orders-0")
    assert log.log_end_offset == 13
    assert offsets_of(read_all(log)) == list(range(10))


@pytest.mark.parametrize(
    ("suffix", "damage"),
    [
        *(
            (suffix, damage)
            for suffix in (".index", ".timeindex")
            for damage in ("missing", "zeros", "odd size")
        ),
        (".index", "beyond the log"),
    ],
)
def test_a_missing_or_damaged_index_is_rebuilt_identically(tmp_path, suffix, damage):
    log = open_log(tmp_path / "orders-0")
    written = fill(log, 60)
    log.close(clean=True)
    path = tmp_path / "orders-0" / f"{log.segments.base_offsets[1]:020d}{suffix}"
    before = path.read_bytes()
    assert before
    if damage == "missing":
        path.unlink()
    elif damage == "zeros":
        path.write_bytes(before + bytes(48))
    elif damage == "odd size":
        path.write_bytes(before[:-1])
    else:
        path.write_bytes(before + b"\0\0\0\x7f\0\xff\xff\xff")
    log = open_log(tmp_path / "orders-0", clean_shutdown=True, recovery_point=log.recovery_point)
    for offset in range(0, 120, 2):
        log.segments.clear_cache()
        found = log.read(offset, 100, end_offset=120, at_least_one=True)
        assert found.region.read() == written[offset // 2]
    assert path.read_bytes() == before


def test_an_index_without_a_log_file_is_removed(tmp_path):
    open_log(tmp_path / "orders-0").close(clean=True)
    orphan = tmp_path / "orders-0" / "00000000000000000777.index"
    orphan.write_bytes(bytes(8))
    open_log(tmp_path / "orders-0", clean_shutdown=True)
    assert not orphan.exists()


def test_the_log_end_is_found_without_a_recovery_point(tmp_path):
    log = open_log(tmp_path / "orders-0")
    fill(log, 60)
    log.close(clean=True)
    assert open_log(tmp_path / "orders-0", clean_shutdown=True).log_end_offset == 120


@pytest.mark.parametrize("clean_shutdown", [True, False])
def test_a_log_start_offset_beyond_the_log_end_is_ignored_and_deletes_nothing(
    tmp_path, caplog, clean_shutdown
):
    log = open_log(tmp_path / "orders-0")
    fill(log, 10)
    log.close(clean=True)
    log = open_log(
        tmp_path / "orders-0", log_start_offset=500, clean_shutdown=clean_shutdown, recovery_point=20
    )
    assert (log.log_start_offset, log.log_end_offset) == (0, 20)
    assert offsets_of(read_all(log)) == list(range(20))
    assert (
        f"{tmp_path}/log-start-offset-checkpoint says that orders-0 starts at offset 500, but it ends at offset 20"
        in caplog.text
    )


def test_a_log_start_offset_at_the_log_end_is_kept(tmp_path):
    log = open_log(tmp_path / "orders-0")
    fill(log, 10)
    log.close(clean=False)
    log = open_log(tmp_path / "orders-0", log_start_offset=20)
    assert (log.log_start_offset, log.log_end_offset) == (20, 20)


def test_a_recovery_point_beyond_the_log_end_is_ignored_and_every_segment_is_checked(tmp_path, caplog):
    log = open_log(tmp_path / "orders-0")
    fill(log, 60)
    bases = log.segments.base_offsets
    log.close(clean=False)
    damaged = tmp_path / "orders-0" / f"{bases[1]:020d}.log"
    data = bytearray(damaged.read_bytes())
    data[200] ^= 1
    damaged.write_bytes(data)
    with pytest.raises(DamagedLogError, match=rf"{damaged} is damaged at position \d+"):
        open_log(tmp_path / "orders-0", recovery_point=500)
    assert damaged.read_bytes() == data, "a wrong checkpoint entry must not truncate a log"
    data[200] ^= 1
    damaged.write_bytes(data)
    log = open_log(tmp_path / "orders-0", recovery_point=500)
    assert log.log_end_offset == 120
    assert log.recovery_point == 0
    assert (
        f"{tmp_path}/recovery-point-offset-checkpoint says that orders-0 is flushed up to offset 500"
        in caplog.text
    )


def test_after_a_clean_shutdown_a_recovery_point_beyond_the_log_end_is_ignored(tmp_path, caplog):
    log = open_log(tmp_path / "orders-0")
    fill(log, 60)
    log.close(clean=True)
    log = open_log(tmp_path / "orders-0", recovery_point=500, clean_shutdown=True)
    assert log.log_end_offset == 120
    assert "but it ends at offset 120: the entry is ignored" in caplog.text


def test_deleted_files_are_removed_at_the_next_start(tmp_path):
    log = open_log(tmp_path / "orders-0")
    fill(log, 40)
    log.delete_records_before(60)
    log.delete_old_segments(NOW_MS, 80)
    log.close(clean=True)
    assert list((tmp_path / "orders-0").glob("*.deleted"))
    log = open_log(
        tmp_path / "orders-0", clean_shutdown=True, recovery_point=80, log_start_offset=log.log_start_offset
    )
    assert not list((tmp_path / "orders-0").glob("*.deleted"))
    assert offsets_of(read_all(log, 60)) == list(range(60, 80))


def test_finished_compaction_is_swapped_in_and_unfinished_compaction_is_removed(tmp_path):
    log = open_log(tmp_path / "orders-0")
    fill(log, 60)
    bases = log.segments.base_offsets
    log.close(clean=True)
    directory = tmp_path / "orders-0"
    cleaned = open_log(tmp_path / "cleaned", LogConfig())
    cleaned.append([batch(0)], NOW_MS)
    cleaned.append([batch(bases[2] - 1)], NOW_MS)
    cleaned.close(clean=True)
    for suffix in (".log", ".index", ".timeindex"):
        source = tmp_path / "cleaned" / f"{0:020d}{suffix}"
        shutil.copy(source, directory / f"{0:020d}{suffix}.swap")
        shutil.copy(source, directory / f"{bases[3]:020d}{suffix}.cleaned")
    log = open_log(directory, clean_shutdown=True, recovery_point=120)
    assert log.segments.base_offsets == [0, *bases[2:]]
    assert offsets_of(read_all(log)) == [0, bases[2] - 1, *range(bases[2], 120)]
    assert not list(directory.glob("*.swap")) + list(directory.glob("*.cleaned"))


def test_leader_epochs_are_rebuilt_from_the_log_if_their_checkpoint_is_lost_or_damaged(tmp_path):
    log = open_log(tmp_path / "orders-0")
    for epoch in (3, 3, 5, 9):
        fill(log, 5, leader_epoch=epoch)
    log.close(clean=False)
    assert not (tmp_path / "orders-0" / "leader-epoch-checkpoint").exists()
    log = open_log(tmp_path / "orders-0")
    expected = [(3, 0), (5, 20), (9, 30)]
    assert log.epochs.entries() == expected
    log.close(clean=True)
    (tmp_path / "orders-0" / "leader-epoch-checkpoint").write_text("0\n2\nnonsense\n")
    log = open_log(tmp_path / "orders-0", clean_shutdown=True, recovery_point=40)
    assert log.epochs.entries() == expected


@pytest.mark.parametrize("seed", range(30))
def test_flushed_records_survive_a_power_loss_and_unflushed_ones_in_part(seed):
    disk = sim_disk(seed)
    log = open_log("/data/orders-0", disk=disk)
    written = fill(log, 20)
    log.flush()
    written += fill(log, 5 + seed)
    disk.crash()
    log = open_log("/data/orders-0", disk=disk.reopen(), recovery_point=log.recovery_point)
    assert log.log_end_offset >= 40
    assert read_all(log) == b"".join(written[: log.log_end_offset // 2])


@pytest.mark.parametrize("operations", range(0, 60, 3))
def test_a_power_loss_during_a_clean_close_loses_no_flushed_record(operations):
    disk = sim_disk(operations)
    log = open_log("/data/orders-0", disk=disk)
    written = fill(log, 30)
    log.flush()
    written += fill(log, 3)
    disk.crash_after(operations)
    try:
        log.close(clean=True)
    except OSError:
        pass
    log = open_log("/data/orders-0", disk=disk.reopen(), recovery_point=60)
    assert log.log_end_offset >= 60
    assert read_all(log) == b"".join(written[: log.log_end_offset // 2])


def test_a_partition_that_was_never_flushed_may_be_lost_with_the_power():
    disk = sim_disk(7)
    open_log("/data/orders-0", SMALL, disk=disk)
    disk.crash()
    log = open_log("/data/orders-0", SMALL, disk=disk.reopen())
    assert log.log_end_offset == 0
    fill(log, 3)
