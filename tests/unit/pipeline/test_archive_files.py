from pathlib import Path

import pytest
from tests.unit.pipeline.archive_samples import QUERY, a_batch, a_file

from ottla.pipeline.archive.checkpoint import Checkpoint
from ottla.pipeline.archive.faults import reading_failed, writing_failed
from ottla.pipeline.archive.files import Found, LocalFiles, files_at
from ottla.pipeline.archive.manifest import Merge
from ottla.pipeline.archive.stage import folder_problems, prepare
from ottla.pipeline.archive.store import Archive
from ottla.pipeline.errors import PipelineError


def test_a_file_is_made_whole_and_never_over_another(tmp_path: Path) -> None:
    files = LocalFiles(str(tmp_path))
    assert files.create("a/b.json", "first")
    assert not files.create("a/b.json", "second")
    assert files.read("a/b.json") == "first"
    assert files.names("a") == ["b.json"]


def test_a_moved_file_takes_the_place_of_one_that_an_earlier_attempt_left(tmp_path: Path) -> None:
    files = LocalFiles(str(tmp_path))
    files.create("staged", "new")
    files.create("there/final", "old")
    files.move("staged", "there/final")
    assert files.below("") == [Found("there/final", 3)]
    assert files.read("there/final") == "new"


def test_what_is_not_there_has_no_names_and_can_be_deleted(tmp_path: Path) -> None:
    files = LocalFiles(str(tmp_path))
    assert (files.names("none"), files.below("none"), files.exists("none")) == ([], [], False)
    files.delete("none")


def test_an_archive_that_is_not_local_needs_spark() -> None:
    with pytest.raises(PipelineError, match="can be read only through Spark"):
        files_at("s3a://bucket/archive")


def test_manifests_are_added_once_and_read_together(tmp_path: Path) -> None:
    archive = Archive.at(str(tmp_path))
    batch = a_batch(0, [("raw", 0, 0, 5)], a_file("one", (0, 0, 4)))
    archive.commit_batch(batch)
    archive.commit_batch(a_batch(0, [("raw", 0, 0, 9)]))
    assert archive.has_batch(0, QUERY)
    assert archive.commit_merge(Merge(1, 5, (), ()))
    assert not archive.commit_merge(Merge(1, 6, (), (batch.files[0].path,)))
    assert archive.load().ranges == batch.ranges
    assert len(archive.load().files) == 1


def test_a_manifest_that_is_not_even_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "_manifests").mkdir()
    (tmp_path / "_manifests" / "batch-0000000000-ab.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(PipelineError, match=r"_manifests/batch-0000000000-ab\.json is damaged"):
        Archive.at(str(tmp_path)).load()


def test_an_archive_is_made_once_and_missed_when_it_is_gone(tmp_path: Path) -> None:
    archive, checkpoint = Archive.at(str(tmp_path / "archive")), LocalFiles(str(tmp_path / "checkpoint"))
    prepare(archive, Checkpoint(checkpoint))
    assert archive.exists()
    checkpoint.create("metadata", f'{{"id":"{QUERY}"}}')
    checkpoint.create("commits/0", "v1\n{}")
    with pytest.raises(PipelineError, match="does not hold batch 0"):
        prepare(archive, Checkpoint(checkpoint))
    archive.commit_batch(a_batch(0, []))
    prepare(archive, Checkpoint(checkpoint))
    archive.files.delete("")
    with pytest.raises(PipelineError, match="is gone: it has no folder _manifests"):
        prepare(archive, Checkpoint(checkpoint))


def test_a_path_that_cannot_be_a_folder_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert list(folder_problems(tmp_path / "new" / "deep", "[sinks.a]")) == []
    (problem,) = folder_problems(tmp_path / "file" / "below", "[sinks.a]")
    assert "file is a file" in problem.what


@pytest.mark.parametrize(
    ("account", "said"),
    [
        ("java.io.IOException: No space left on device", "is full. Make room on it"),
        ("org.apache.hadoop.security.AccessControlException: Permission denied: user=x", "permission denied"),
        ("ExitCodeException: Mkdirs failed to create file:/x/y (exists=false)", "its folder cannot be made"),
        ("Something\njava.lang.Exception: odd.", "could not be written: java.lang.Exception: odd. Mend that"),
        ("Error while reading file file:///a/x.parquet. bad magic", "file:///a/x.parquet cannot be read"),
    ],
)
def test_a_fault_of_the_disk_is_told_in_a_sentence(account: str, said: str) -> None:
    error = writing_failed("file:///archive", account)
    assert said in str(error)


def test_an_unreadable_file_is_named() -> None:
    account = "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///a/date=1/x.parquet.  SQLSTATE"
    assert "The archive's file file:///a/date=1/x.parquet cannot be read" in str(reading_failed("u", account))
    assert "could not be read: x" in str(reading_failed("file:///u", "y\nx."))
