from pathlib import Path
from random import Random

import pytest
from tests.unit.storage.log_builder import NOW_MS

from ottla.env.real_disk import RealDisk
from ottla.sim.disk import SimDisk
from ottla.storage.directory_creation import create_directory
from ottla.storage.log_dirs import LogDirs


@pytest.mark.parametrize("path", ["/data/deep/down/one", "/elsewhere"])
def test_a_data_directory_survives_a_power_loss_with_what_was_synced_in_it(path: str) -> None:
    for seed in range(20):
        disk = SimDisk(Random(seed), lambda: NOW_MS)
        create_directory(disk, path)
        disk.write_atomically(f"{path}/meta.properties", b"synced")
        disk.crash()
        assert disk.reopen().read_bytes(f"{path}/meta.properties") == b"synced"


def test_the_directories_of_a_broker_survive_a_power_loss() -> None:
    for seed in range(20):
        disk = SimDisk(Random(seed), lambda: NOW_MS)
        LogDirs(disk, ["/data/one", "/data/two"])
        disk.crash()
        assert disk.reopen().list_dir("/data") == ["one", "two"]


def test_a_relative_path_is_synced_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    synced: list[str] = []
    monkeypatch.setattr(RealDisk, "sync_dir", lambda disk, path: synced.append(path))
    for path in ("data/one", "data/one", "data/two"):
        create_directory(RealDisk(), path)
    assert synced == ["data", ".", "data"]
