"""The Delta log of an archived topic: its actions, and that each manifest is one version."""

import io
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.unit.pipeline.archive.archive_samples import a_batch, a_file

from ottla.pipeline.archive import delta, store
from ottla.pipeline.archive.delta import DeltaLog, delta_logs, publish
from ottla.pipeline.archive.delta_actions import apply_version, next_version, path_in_table
from ottla.pipeline.archive.delta_checkpoint import paths_in
from ottla.pipeline.archive.manifest import Claim, Manifest, Merge
from ottla.pipeline.archive.store import Archive
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.files import LocalFiles

SMALL, OTHER, LARGE = a_file("one", (0, 0, 4)), a_file("two", (0, 5, 9), (3, 2, 2)), a_file("all", (0, 0, 9))
LATE = a_file("late", (0, 10, 10))
ELSEWHERE = a_file("three", (0, 0, 1), topic="fly")
HISTORY: dict[int, Manifest] = {
    1: Claim("5eed", "process 7 on here", 98, ("raw",)),
    2: a_batch(0, [], SMALL),
    3: a_batch(1, [], ELSEWHERE),
    4: a_batch(2, [], OTHER, ELSEWHERE),
    5: Merge(99, (LARGE,), (SMALL.path, OTHER.path)),
}
# No other writer knows the last feature, so each rejects the table.
RESERVED = {
    "minReaderVersion": 1,
    "minWriterVersion": 7,
    "writerFeatures": ["appendOnly", "invariants", "ottlaArchive"],
}


def until(number: int) -> dict[int, Manifest]:
    return {one: manifest for one, manifest in HISTORY.items() if one <= number}


def versions(folder: Path) -> list[list[dict[str, Any]]]:
    logs = sorted((folder / "raw" / "_delta_log").glob("*.json"))
    return [[json.loads(line) for line in log.read_text().splitlines()] for log in logs]


def kinds(actions: list[dict[str, Any]]) -> list[str]:
    return [next(iter(action)) for action in actions]


def test_each_manifest_that_touches_the_topic_is_one_version(tmp_path: Path) -> None:
    log = DeltaLog(LocalFiles(str(tmp_path)), "raw")
    for number in (2, 3, 4, 5, 5):
        log.publish(until(number))
    DeltaLog(LocalFiles(str(tmp_path)), "raw").publish(HISTORY)
    first, second, third = versions(tmp_path)
    assert kinds(first) == ["commitInfo", "protocol", "metaData", "txn", "add"]
    assert kinds(second) == ["commitInfo", "txn", "add"]
    assert kinds(third) == ["commitInfo", "txn", "remove", "remove", "add"]
    assert second[1]["txn"] == {"appId": "ottla-archive", "version": 4}
    assert second[2]["add"]["partitionValues"] == {"date": "2026-01-31", "hour": "7"}
    assert json.loads(second[2]["add"]["stats"]) == {
        "numRecords": 6,
        "minValues": {"partition": 0, "offset": 2},
        "maxValues": {"partition": 3, "offset": 9},
        "nullCount": {"partition": 0, "offset": 0},
    }
    # A stream that follows the table sees the merged records once.
    assert {action["remove"]["dataChange"] for action in third[2:4]} == {False}
    assert third[4]["add"]["dataChange"] is False


def test_a_version_is_built_only_for_a_manifest_that_the_log_does_not_include(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[int] = []

    def counted(number: int, *given: Any) -> list[dict[str, Any]]:
        built.append(number)
        return next_version(number, *given)

    monkeypatch.setattr(delta, "next_version", counted)
    log = DeltaLog(LocalFiles(str(tmp_path)), "raw")
    for number in (2, 4, 5, 5):
        log.publish(until(number))
    assert built == [3, 4, 5]


def test_the_first_version_of_each_process_reserves_the_table_for_the_archive(tmp_path: Path) -> None:
    files = LocalFiles(str(tmp_path))
    DeltaLog(files, "raw").publish(until(2))
    log = DeltaLog(files, "raw")
    log.publish(until(4))
    log.publish(HISTORY)
    protocols = [
        [action["protocol"] for action in actions if "protocol" in action] for actions in versions(tmp_path)
    ]
    assert protocols == [[RESERVED], [RESERVED], []]


def test_concurrent_publishers_write_each_version_once(tmp_path: Path) -> None:
    one, other = (DeltaLog(LocalFiles(str(tmp_path)), "raw") for _ in range(2))
    one.publish(until(2))
    other.publish(until(2))
    other.publish(until(4))
    one.publish(HISTORY)
    other.publish(HISTORY)
    assert [kinds(actions) for actions in versions(tmp_path)[1:]] == [
        ["commitInfo", "protocol", "txn", "add"],
        ["commitInfo", "txn", "remove", "remove", "add"],
    ]


def test_a_checkpoint_is_the_sum_of_its_versions_and_old_versions_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta, "CHECKPOINT_EVERY", 2)
    monkeypatch.setattr(delta, "VERSIONS_KEPT", 2)
    log = DeltaLog(LocalFiles(str(tmp_path)), "raw")
    log.publish(until(2))
    log.publish(HISTORY)
    more = {number: a_batch(number, [], a_file(str(number), (0, number, number))) for number in range(10, 12)}
    log.publish({**HISTORY, **more})
    folder = tmp_path / "raw" / "_delta_log"
    assert [path.name.lstrip("0") for path in sorted(folder.iterdir())] == [
        "2.checkpoint.parquet", "2.json", "3.json", "4.checkpoint.parquet", "4.json",
    ]  # fmt: skip
    rows = pq.read_table(io.BytesIO((folder / f"{4:020}.checkpoint.parquet").read_bytes())).to_pylist()
    assert [row["protocol"] for row in rows if row["protocol"]] == [RESERVED]
    assert [row["txn"]["version"] for row in rows if row["txn"]] == [11]
    assert {row["add"]["path"] for row in rows if row["add"]} == {
        path_in_table(file.path) for file in (LARGE, more[10].files[0], more[11].files[0])
    }


def test_a_checkpoint_that_a_killed_process_did_not_write_is_written_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, the versions up to the next checkpoint cannot be read once those before it are deleted."""
    monkeypatch.setattr(delta, "CHECKPOINT_EVERY", 2)
    files = LocalFiles(str(tmp_path))
    log = DeltaLog(files, "raw")
    log.publish(until(2))
    log.publish(HISTORY)
    path = f"raw/_delta_log/{2:020}.checkpoint.parquet"
    written = files.read_bytes(path)
    files.delete(path)
    more = {6: a_batch(3, [], LATE)}
    DeltaLog(files, "raw").publish({**HISTORY, **more})
    assert paths_in(files.read_bytes(path)) == paths_in(written) == {path_in_table(LARGE.path)}
    assert files.names("raw/_delta_log")[-1] == f"{3:020}.json"


@pytest.mark.parametrize("log_has", [2, 4])
def test_a_log_catches_up_with_manifests_that_were_condensed_before_it_included_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_has: int
) -> None:
    """As after a kill between manifest and log, when another run condenses."""
    monkeypatch.setattr(store, "CONDENSE_AT", len(HISTORY))
    archive = Archive.at(str(tmp_path))
    DeltaLog(archive.files, "raw").publish(until(log_has))
    for manifest in HISTORY.values():
        if isinstance(manifest, Merge):
            archive.commit_merge(manifest, lambda _: None)
        else:
            archive.commit(manifest, lambda _: None)
    archive.condense()
    archive.commit(a_batch(3, [], LATE), lambda _: None)
    for _ in range(2):
        log = DeltaLog(archive.files, "raw")
        publish(archive, [log])
        assert log.listed_files() == {path_in_table(file.path) for file in (LARGE, LATE)}
        assert log.position()[1] == 6
    assert kinds(versions(tmp_path)[-1]) == ["commitInfo", "txn", "add"]


def test_a_log_of_an_archive_with_a_condensed_history_has_all_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "CONDENSE_AT", 2)
    monkeypatch.setattr(delta, "CHECKPOINT_EVERY", 2)
    archive = Archive.at(str(tmp_path))
    files = [a_file(str(number), (0, number, number)) for number in range(6)]
    paths: set[str] = set()
    for number, file in enumerate(files):
        archive.commit(a_batch(number, [], file), lambda _: None)
        archive.condense()
        paths.add(path_in_table(file.path))
        if number > 1:
            log = DeltaLog(archive.files, "raw")
            publish(archive, [log])
            assert log.listed_files() == paths
    assert len(versions(tmp_path)) == 4


def test_a_version_is_applied_to_the_files_before_it() -> None:
    text = "\n".join(json.dumps(action) for action in next_version(5, HISTORY[5], "raw", 0))
    before = {path_in_table(file.path) for file in (SMALL, OTHER)}
    assert apply_version(before | {"kept"}, text) == {path_in_table(LARGE.path), "kept"}


def test_an_existing_log_is_updated_without_the_setting(tmp_path: Path) -> None:
    archive = Archive.at(str(tmp_path))
    assert delta_logs(archive, ["raw"], wanted=False) == []
    (log,) = delta_logs(archive, ["raw"], wanted=True)
    log.publish(HISTORY)
    assert [one.topic for one in delta_logs(archive, ["raw", "fly"], wanted=False)] == ["raw"]


def test_a_delta_table_of_another_program_is_rejected(tmp_path: Path) -> None:
    files = LocalFiles(str(tmp_path))
    files.create(f"raw/_delta_log/{0:020}.json", '{"commitInfo": {}}\n')
    with pytest.raises(PipelineError, match="_delta_log was not created by Ottla"):
        DeltaLog(files, "raw").publish(HISTORY)
