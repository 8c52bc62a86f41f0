import errno
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from ottla.env.disk import Disk
from ottla.sim.disk import WRITES, SimDisk
from ottla.sim.volume import PAGE

SEEDS = range(40)


def written(disk: Disk, path: str, data: bytes, *, synced: bool) -> None:
    file = disk.open(path, create=True)
    file.write_at(0, [data])
    if synced:
        file.sync()
        disk.sync_dir("/data")


def test_synced_bytes_survive_every_power_loss() -> None:
    for seed in SEEDS:
        disk = SimDisk(Random(seed))
        written(disk, "/data/a", b"x" * 10_000, synced=True)
        disk.crash()
        assert disk.reopen().read_bytes("/data/a") == b"x" * 10_000


def test_unsynced_bytes_may_be_lost_kept_or_torn_but_synced_bytes_survive() -> None:
    lengths = set()
    for seed in SEEDS:
        disk = SimDisk(Random(seed))
        written(disk, "/data/a", b"x" * 10_000, synced=True)
        disk.open("/data/a").write_at(10_000, [b"y" * 5_000, b"z" * 5_000])
        disk.crash()
        data = disk.reopen().read_bytes("/data/a")
        assert data[:10_000] == b"x" * 10_000
        assert set(data[10_000:]) <= set(b"yz\0")
        lengths.add(len(data))
    assert {10_000, 20_000} < lengths


def test_a_test_may_have_all_unsynced_bytes_and_names_lost() -> None:
    for seed in SEEDS:
        disk = SimDisk(Random(seed))
        written(disk, "/data/a", b"x" * 10_000, synced=True)
        disk.open("/data/a").write_at(10_000, [b"y" * 5_000])
        written(disk, "/data/b", b"y", synced=False)
        disk.loses_all_unsynced = True
        disk.crash()
        disk = disk.reopen()
        assert disk.list_dir("/data") == ["a"]
        assert disk.read_bytes("/data/a") == b"x" * 10_000


def test_an_unsynced_name_may_be_lost_although_the_file_is_synced() -> None:
    found = set()
    for seed in SEEDS:
        disk = SimDisk(Random(seed))
        file = disk.open("/data/a", create=True)
        file.write_at(0, [b"x"])
        file.sync()
        disk.crash()
        found.add(disk.reopen().exists("/data/a"))
    assert found == {True, False}


def test_a_rename_is_atomic() -> None:
    outcomes = set()
    for seed in SEEDS:
        disk = SimDisk(Random(seed))
        written(disk, "/data/a", b"new", synced=True)
        written(disk, "/data/b", b"old", synced=True)
        disk.rename("/data/a", "/data/b")
        disk.crash()
        after = disk.reopen()
        outcomes.add((after.exists("/data/a"), after.read_bytes("/data/b")))
    assert outcomes == {(True, b"old"), (False, b"new")}


def test_a_removed_file_may_come_back_until_its_folder_is_synced() -> None:
    found = set()
    for seed in SEEDS:
        disk = SimDisk(Random(seed))
        written(disk, "/data/a", b"x", synced=True)
        disk.remove("/data/a")
        disk.crash()
        found.add(disk.reopen().exists("/data/a"))
    assert found == {True, False}


def test_a_write_after_a_truncation_never_survives_without_the_truncation() -> None:
    for seed in SEEDS:
        disk = SimDisk(Random(seed))
        written(disk, "/data/a", b"x" * 3 * PAGE, synced=True)
        file = disk.open("/data/a")
        file.truncate(PAGE)
        file.write_at(PAGE, [b"y" * 10])
        disk.crash()
        data = disk.reopen().read_bytes("/data/a")
        assert data == b"x" * 3 * PAGE or (b"x" not in data[PAGE:] and data[:PAGE] == b"x" * PAGE)


def test_bytes_of_a_killed_process_survive() -> None:
    disk = SimDisk(Random(1))
    written(disk, "/data/a", b"x", synced=False)
    mapped = disk.map("/data/index", 4096)
    mapped.buffer[:2] = b"ab"
    disk.kill()
    mapped.buffer[:2] = b"??"
    after = disk.reopen()
    assert after.read_bytes("/data/a") == b"x"
    assert after.read_bytes("/data/index")[:2] == b"ab"


def test_bytes_written_through_a_map_survive_once_the_map_is_synced() -> None:
    for seed in SEEDS:
        disk = SimDisk(Random(seed))
        mapped = disk.map("/data/index", 100_000)
        mapped.buffer[50_000:50_003] = b"abc"
        mapped.sync()
        disk.sync_dir("/data")
        mapped.buffer[50_003:50_006] = b"def"
        disk.crash()
        data = disk.reopen().read_bytes("/data/index")
        assert data[50_000:50_003] == b"abc"
        assert data[50_003:50_006] == b"def"[: len(data[50_003:50_006].rstrip(b"\0"))].ljust(3, b"\0")


def test_closing_a_map_with_a_size_truncates_the_file() -> None:
    disk = SimDisk(Random(1))
    mapped = disk.map("/data/index", 4096)
    mapped.buffer[:3] = b"abc"
    mapped.close(2)
    assert disk.read_bytes("/data/index") == b"ab"


def test_handles_of_a_dead_process_raise_errors_and_its_locks_are_released() -> None:
    disk = SimDisk(Random(1))
    file = disk.open("/data/a", create=True)
    disk.lock("/data/.lock")
    with pytest.raises(BlockingIOError):
        disk.lock("/data/.lock")
    disk.kill()
    with pytest.raises(OSError, match="dead"):
        file.write_at(0, [b"x"])
    with pytest.raises(OSError, match="dead"):
        disk.list_dir("/data")
    disk.reopen().lock("/data/.lock").release()


def test_a_fault_affects_only_its_folder_until_it_is_healed() -> None:
    disk = SimDisk(Random(1), mounts=("/one", "/two"))
    disk.fail("/one")
    with pytest.raises(OSError) as caught:
        disk.open("/one/a", create=True)
    assert caught.value.errno == errno.EIO
    disk.open("/two/a", create=True)
    disk.heal()
    disk.open("/one/a", create=True)


def test_a_full_disk_fails_writes_but_not_reads() -> None:
    disk = SimDisk(Random(1))
    written(disk, "/data/a", b"x", synced=True)
    disk.fail("/data", errno.ENOSPC, operations=WRITES - {"open"}, times=1)
    file = disk.open("/data/a")
    with pytest.raises(OSError) as caught:
        file.write_at(1, [b"y"])
    assert caught.value.errno == errno.ENOSPC
    assert file.read_at(0, 10) == b"x"
    file.write_at(1, [b"y"])
    assert file.read_at(0, 10) == b"xy"


def test_write_atomically_leaves_the_old_or_the_new_content_after_a_power_loss_at_any_operation() -> None:
    outcomes = set()
    for seed in range(20):
        for operations in range(8):
            disk = SimDisk(Random(seed))
            disk.write_atomically("/data/a", b"old")
            disk.crash_after(operations)
            try:
                disk.write_atomically("/data/a", b"new")
            except OSError:
                assert not disk.is_alive
            outcomes.add(disk.reopen().read_bytes("/data/a"))
    assert outcomes == {b"old", b"new"}


def test_write_atomically_leaves_no_other_file_if_it_fails() -> None:
    for operation in ("truncate", "write", "sync", "rename"):
        disk = SimDisk(Random(1))
        disk.write_atomically("/data/a", b"old")
        disk.fail("/data", errno.ENOSPC, operations=frozenset({operation}))
        with pytest.raises(OSError, match="No space left"):
            disk.write_atomically("/data/a", b"new")
        assert disk.list_dir("/data") == ["a"]
        assert disk.read_bytes("/data/a") == b"old"


def test_wrong_paths_raise_the_same_errors_as_a_real_disk() -> None:
    disk = SimDisk(Random(1))
    disk.make_dirs("/data/topic-0")
    disk.open("/data/file", create=True)
    disk.open("/data/topic-0/log", create=True)
    with pytest.raises(FileNotFoundError):
        disk.open("/data/missing")
    with pytest.raises(FileNotFoundError):
        disk.map("/data/missing")
    with pytest.raises(IsADirectoryError):
        disk.open("/data/topic-0")
    with pytest.raises(NotADirectoryError):
        disk.list_dir("/data/file")
    with pytest.raises(FileExistsError):
        disk.make_dirs("/data/file")
    disk.rename("/data/topic-0", "/data/topic-0.delete")
    assert disk.list_dir("/data") == ["file", "topic-0.delete"]
    disk.remove_tree("/data/topic-0.delete")
    assert not disk.exists("/data/topic-0.delete")


steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 3 * PAGE), st.binary(max_size=200)),
        st.tuples(st.just("cut"), st.integers(0, 3 * PAGE)),
        st.tuples(st.just("sync")),
    ),
    max_size=12,
)


@examples(150)
@given(steps=steps, seed=st.integers(0, 1000))
def test_a_file_behaves_like_a_bytearray_and_a_sync_makes_it_durable(
    steps: list[tuple[object, ...]], seed: int
) -> None:
    disk = SimDisk(Random(seed))
    file = disk.open("/data/a", create=True)
    disk.sync_dir("/data")
    model = bytearray()
    for step in steps:
        match step:
            case ("write", int(position), bytes(data)):
                file.write_at(position, [data])
                model.extend(bytes(max(0, position + len(data) - len(model))))
                model[position : position + len(data)] = data
            case ("cut", int(size)):
                file.truncate(size)
                del model[size:]
                model.extend(bytes(size - len(model)))
            case _:
                file.sync()
        assert file.read_at(0, 1 << 20) == model
    file.sync()
    disk.crash()
    assert disk.reopen().read_bytes("/data/a") == model


def test_renaming_one_hard_link_to_another_of_the_same_file_does_nothing() -> None:
    disk = SimDisk(Random(1))
    disk.open("/data/a", create=True).write_at(0, [b"text"])
    disk.link("/data/a", "/data/b")
    disk.open("/data/a").write_at(4, [b"!"])
    assert disk.read_bytes("/data/b") == b"text!"
    disk.rename("/data/a", "/data/b")  # as in POSIX
    assert disk.list_dir("/data") == ["a", "b"]
    disk.remove("/data/a")
    assert disk.read_bytes("/data/b") == b"text!"
    with pytest.raises(FileExistsError):
        disk.link("/data/b", "/data/b")
