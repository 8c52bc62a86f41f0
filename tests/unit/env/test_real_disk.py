import gc
import os
import subprocess
import sys

import pytest

from ottla.env import real_disk
from ottla.env.real_disk import RealDisk, RealFile


@pytest.fixture
def disk() -> RealDisk:
    return RealDisk()


def test_buffers_are_written_one_after_the_other_and_read_back(disk, tmp_path):
    file = disk.open(str(tmp_path / "f"), create=True)
    file.write_at(3, [b"abc", memoryview(b"xdefx")[1:4], bytearray(b"ghi")])
    assert file.read_at(3, 100) == b"abcdefghi"
    assert file.read_at(0, 4) == b"\0\0\0a"
    assert file.size() == 12


def test_more_buffers_than_one_system_call_takes_are_all_written(disk, tmp_path):
    file = disk.open(str(tmp_path / "f"), create=True)
    parts = [b"%d," % number for number in range(real_disk.IOV_MAX * 2 + 7)]
    file.write_at(0, parts)
    assert file.read_at(0, 1 << 20) == b"".join(parts)


def test_a_short_write_is_continued(disk, tmp_path, monkeypatch):
    file = disk.open(str(tmp_path / "f"), create=True)

    def short_pwritev(descriptor, buffers, position):
        return os.pwrite(descriptor, b"".join(buffers)[:2], position)

    monkeypatch.setattr(os, "pwritev", short_pwritev)
    file.write_at(5, [b"abc", b"", b"d", memoryview(b"efgh")])
    assert file.read_at(5, 100) == b"abcdefgh"


def test_a_short_read_is_continued(disk, tmp_path, monkeypatch):
    file = disk.open(str(tmp_path / "f"), create=True)
    file.write_at(0, [b"abcdefgh"])
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, length, position: pread(fd, min(length, 3), position))
    assert file.read_at(0, 8) == b"abcdefgh"
    assert file.read_at(2, 100) == b"cdefgh"


def test_opening_a_missing_file_without_create_raises_an_error(disk, tmp_path):
    with pytest.raises(FileNotFoundError):
        disk.open(str(tmp_path / "missing"))


def test_the_descriptor_closes_with_the_last_reference(disk, tmp_path):
    file: RealFile | None = disk.open(str(tmp_path / "f"), create=True)
    assert file is not None
    descriptor = file.fileno()
    os.fstat(descriptor)
    file = None
    gc.collect()
    with pytest.raises(OSError):
        os.fstat(descriptor)


def test_bytes_just_written_are_cached(disk, tmp_path):
    file = disk.open(str(tmp_path / "f"), create=True)
    file.write_at(0, [b"x" * 100_000])
    assert file.is_cached(0, 100_000)


def test_a_mapped_file_is_extended_written_and_truncated_on_close(disk, tmp_path):
    path = tmp_path / "index"
    mapped = disk.map(str(path), 1 << 20)
    mapped.reserve(8)
    mapped.buffer[0:8] = b"12345678"
    mapped.sync()
    assert path.stat().st_size == 1 << 20
    assert path.stat().st_blocks * 512 < 1 << 20, "the rest stays a hole"
    mapped.close(8)
    assert path.read_bytes() == b"12345678"
    mapped = disk.map(str(path))
    assert bytes(mapped.buffer) == b"12345678"
    mapped.close()


def test_an_empty_file_maps_to_an_empty_buffer(disk, tmp_path):
    disk.open(str(tmp_path / "f"), create=True)
    mapped = disk.map(str(tmp_path / "f"))
    assert len(mapped.buffer) == 0
    mapped.close()


def test_reserving_space_on_a_full_disk_raises_instead_of_killing_the_process(disk, tmp_path, monkeypatch):
    mapped = disk.map(str(tmp_path / "f"), 1 << 20)

    def full(descriptor, position, length):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space left"):
        mapped.reserve(8)
    mapped.close()


def test_an_atomic_write_replaces_the_file_and_leaves_nothing_else(disk, tmp_path):
    path = tmp_path / "checkpoint"
    disk.write_atomically(str(path), b"old")
    disk.write_atomically(str(path), b"new")
    assert path.read_bytes() == b"new"
    assert disk.list_dir(str(tmp_path)) == ["checkpoint"]


@pytest.mark.parametrize("operation", ["pwritev", "fsync", "replace"])
def test_an_atomic_write_that_fails_leaves_the_old_file_and_nothing_else(
    disk, tmp_path, monkeypatch, operation
):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    path = tmp_path / "checkpoint"
    disk.write_atomically(str(path), b"old")
    monkeypatch.setattr(os, operation, full)
    with pytest.raises(OSError, match="No space left"):
        disk.write_atomically(str(path), b"new")
    assert path.read_bytes() == b"old"
    assert disk.list_dir(str(tmp_path)) == ["checkpoint"]


def test_a_lock_excludes_a_second_broker_in_the_same_process(disk, tmp_path):
    lock = disk.lock(str(tmp_path / ".lock"))
    with pytest.raises(BlockingIOError):
        disk.lock(str(tmp_path / ".lock"))
    lock.release()
    disk.lock(str(tmp_path / ".lock")).release()


def test_a_lock_excludes_a_process_that_locks_as_java_does(disk, tmp_path):
    lock = disk.lock(str(tmp_path / ".lock"))
    script = (
        f"import fcntl; fcntl.lockf(open({str(tmp_path / '.lock')!r}, 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "BlockingIOError" in result.stderr
    lock.release()


def test_names_are_listed_sorted_and_a_tree_is_removed(disk, tmp_path):
    disk.make_dirs(str(tmp_path / "a" / "b"))
    for name in ("z", "y", "x"):
        disk.open(str(tmp_path / "a" / name), create=True)
    assert disk.list_dir(str(tmp_path / "a")) == ["b", "x", "y", "z"]
    disk.rename(str(tmp_path / "a" / "x"), str(tmp_path / "a" / "w"))
    disk.remove(str(tmp_path / "a" / "y"))
    assert disk.list_dir(str(tmp_path / "a")) == ["b", "w", "z"]
    disk.remove_tree(str(tmp_path / "a"))
    assert not disk.exists(str(tmp_path / "a"))


def test_the_space_of_the_volume_is_reported(disk, tmp_path):
    total, usable = disk.space(str(tmp_path))
    assert total >= usable > 0


def test_read_into_fills_the_buffer_up_to_the_end_of_the_file(tmp_path):
    file = RealDisk().open(str(tmp_path / "file"), create=True)
    file.write_at(0, [b"0123456789"])
    buffer = bytearray(8)
    assert file.read_into(1, memoryview(buffer)) == 8
    assert buffer == b"12345678"
    assert file.read_into(7, memoryview(buffer)) == 3
    assert buffer[:3] == b"789"


def test_a_link_is_a_second_name_of_the_same_file(tmp_path):
    disk = RealDisk()
    disk.open(str(tmp_path / "a"), create=True).write_at(0, [b"text"])
    disk.link(str(tmp_path / "a"), str(tmp_path / "b"))
    disk.remove(str(tmp_path / "a"))
    assert disk.read_bytes(str(tmp_path / "b")) == b"text"


def test_a_file_of_the_wanted_size_is_not_truncated_again(disk, tmp_path, monkeypatch):
    sizes = []
    ftruncate = os.ftruncate
    monkeypatch.setattr(os, "ftruncate", lambda fd, size: (sizes.append(size), ftruncate(fd, size)))
    file = disk.open(str(tmp_path / "f"), create=True)
    file.truncate(0)
    file.write_at(0, [b"abc"])
    file.truncate(3)
    file.truncate(2)
    assert (sizes, file.size()) == ([2], 2)
