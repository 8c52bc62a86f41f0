from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, NoReturn, cast

import pytest
from tests.unit.pipeline.archive.archive_samples import QUERY, a_batch, a_file

from ottla.pipeline.archive.errors import read_error, write_error
from ottla.pipeline.archive.layout import batch_name
from ottla.pipeline.archive.manifest import Summary
from ottla.pipeline.archive.ownership import check_is_new, claim_topics
from ottla.pipeline.archive.settings import ArchiveSettings
from ottla.pipeline.archive.stage import ArchiveSink, check_archive, check_folder, check_position
from ottla.pipeline.archive.store import Archive
from ottla.pipeline.errors import PermanentStageError, PipelineError, RetriableError
from ottla.pipeline.files import FoundFile, HadoopFiles, LocalFiles, files_at
from ottla.pipeline.spark.checkpoint import Checkpoint
from ottla.pipeline.spark.discovery import Discovery
from ottla.pipeline.stage import ClusterSettings, Context

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_create_writes_a_complete_file_and_never_replaces_one(tmp_path: Path) -> None:
    files = LocalFiles(str(tmp_path))
    assert files.create("a/b.json", "first")
    assert not files.create("a/b.json", "second")
    assert files.read("a/b.json") == "first"
    assert files.names("a") == ["b.json"]


def test_move_replaces_the_file_of_an_earlier_attempt(tmp_path: Path) -> None:
    files = LocalFiles(str(tmp_path))
    files.create("staged", "new")
    files.create("there/final", "old")
    files.move("staged", "there/final")
    assert files.below("") == [FoundFile("there/final", 3)]
    assert files.read("there/final") == "new"


def test_a_missing_folder_is_empty_and_can_be_deleted(tmp_path: Path) -> None:
    files = LocalFiles(str(tmp_path))
    assert (files.names("none"), files.below("none"), files.exists("none")) == ([], [], False)
    files.delete("none")


def test_a_file_that_vanishes_while_its_folder_is_listed_is_left_out(tmp_path: Path) -> None:
    files = LocalFiles(str(tmp_path))
    files.create("a/there", "it")
    # A name without a file, as it was listed and then deleted.
    (tmp_path / "a" / "gone").symlink_to(tmp_path / "nowhere")
    assert files.below("a") == [FoundFile("a/there", 2)]


def hadoop_files(answers: list[Exception | list[str]], *, exists: bool = True) -> HadoopFiles:
    """A file system whose listings have these answers, one after the other."""

    def list_files(*_: object) -> SimpleNamespace:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        left = list(answer)
        return SimpleNamespace(hasNext=lambda: bool(left), next=lambda: a_status(left.pop(0)))

    def a_status(path: str) -> SimpleNamespace:
        uri = SimpleNamespace(getPath=lambda: path)
        return SimpleNamespace(getPath=lambda: SimpleNamespace(toUri=lambda: uri), getLen=lambda: 2)

    files = object.__new__(HadoopFiles)
    files.root = "hdfs://here/archive"
    files._fs = SimpleNamespace(listFiles=list_files, exists=lambda _: exists)
    root = SimpleNamespace(toUri=lambda: SimpleNamespace(getPath=lambda: "/archive/"))
    path = SimpleNamespace(Path=lambda _: root)
    hadoop = SimpleNamespace(apache=SimpleNamespace(hadoop=SimpleNamespace(fs=path)))
    files._jvm = SimpleNamespace(org=hadoop)
    return files


def test_a_missing_folder_of_hadoop_is_empty_and_one_that_changes_is_listed_again() -> None:
    """A topic with nothing but aborted records has no folder."""
    gone = OSError("java.io.FileNotFoundException: File hdfs://here/archive/raw/date=1 does not exist.")
    assert hadoop_files([gone], exists=False).below("raw") == []
    assert hadoop_files([gone, ["/archive/raw/x"]]).below("raw") == [FoundFile("raw/x", 2)]
    with pytest.raises(OSError, match="denied"):
        hadoop_files([OSError("denied")]).below("raw")
    with pytest.raises(PipelineError, match="hdfs://here/archive/raw cannot be listed"):
        hadoop_files([gone] * 10).below("raw")


def test_an_archive_that_is_not_local_needs_spark() -> None:
    with pytest.raises(PipelineError, match="can be read only through Spark"):
        files_at("s3a://bucket/archive")


def test_only_one_of_two_writers_gets_a_number_and_the_other_checks_again(
    tmp_path: Path,
) -> None:
    archive, other = Archive.at(str(tmp_path)), Archive.at(str(tmp_path))
    ours, theirs = a_batch(0, [("raw", 0, 0, 5)], a_file("one", (0, 0, 4))), a_batch(0, [("fly", 0, 0, 9)])
    seen: list[Summary] = []

    def meanwhile(archived: Summary) -> None:
        if not seen:
            other.commit(theirs, lambda _: None)
        seen.append(archived)

    archive.commit(ours, meanwhile)
    assert [archived.number for archived in seen] == [0, 1]
    assert archive.recent().manifests == other.recent().manifests == {1: theirs, 2: ours}


def test_a_run_whose_topic_was_claimed_adds_nothing(tmp_path: Path) -> None:
    archive = Archive.at(str(tmp_path))
    first, beside = claim_topics(archive, ["raw"]), claim_topics(archive, ["orders"])
    archive.commit(a_batch(0, []), first.check)
    second = claim_topics(Archive.at(str(tmp_path)), ["raw", "more"])
    with pytest.raises(
        PermanentStageError, match=r"no longer archives the topic raw into .*: process \d+ on .* since "
    ):
        archive.commit(a_batch(1, []), first.check)
    assert archive.load().batches == {QUERY: 0}
    archive.commit(a_batch(1, []), second.check)
    archive.commit(a_batch(0, []), beside.check)


def test_a_batch_whose_offsets_are_archived_already_is_not_added(tmp_path: Path) -> None:
    archive = Archive.at(str(tmp_path))
    archive.commit(a_batch(0, [("raw", 0, 0, 100), ("raw@2", 0, 0, 7)]), lambda _: None)
    late = a_batch(1, [("raw", 0, 100, 200), ("raw", 1, 0, 5)])
    other = Archive.at(str(tmp_path))
    seen: list[int] = []

    def check(archived: Summary) -> None:
        if not seen:
            other.commit(a_batch(7, [("raw", 0, 100, 150)]), lambda _: None)
        seen.append(archived.number)
        check_is_new(archived, late.ranges, archive.url, "file:///checkpoints/a")

    with pytest.raises(
        PermanentStageError,
        match=r"^raw-0 offset 100 to 149 is archived already in .* checkpoint file:///checkpoints/a\.$",
    ):
        archive.commit(late, check)
    assert seen == [1, 2]
    assert archive.load().number == 2
    check_is_new(archive.load(), a_batch(2, [("raw", 0, 150, 151)]).ranges, archive.url, "")


def a_checkpoint(folder: Path, *batches: str) -> Checkpoint:
    """One that has planned these batches; each is the line of its source."""
    files = LocalFiles(str(folder))
    files.create("metadata", f'{{"id":"{QUERY}"}}')
    for number, line in enumerate(batches):
        files.create(f"offsets/{number}", f"v1\n{{}}\n{line}")
    return Checkpoint(files)


@pytest.mark.parametrize(
    ("batches", "archived", "repeated"),
    [
        pytest.param([], [(None, "raw", 0, 9)], None, id="a new checkpoint"),
        pytest.param(['{"raw": {"0": 9}}'], [(0, "raw", 0, 9)], None, id="as far as the archive"),
        pytest.param(['{"raw": {"0": 9}}'], [(None, "raw", 0, 20)], None, id="a batch without a known start"),
        pytest.param(['{"raw": {"0": 9}}', '{"raw": {"0": 20}}'], [(0, "raw", 0, 9)], None, id="planned"),
        pytest.param(['{"raw": {"0": 9}}'], [(0, "raw", 0, 9), (None, "raw", 9, 20)], "9 to 19", id="behind"),
        pytest.param(
            ['{"raw": {"0": 9}}', '{"raw": {"0": 20}}'],
            [(0, "raw", 0, 9), (None, "raw", 9, 11)],
            "9 to 10",
            id="planned, and behind",
        ),
        pytest.param(
            ['{"raw": {"0": 9}}'], [(0, "raw", 0, 9), (1, "raw", 9, 20)], "9 to 19", id="an old copy"
        ),
        pytest.param(
            ['{"raw": {"0": 9}, "@start": {"raw": {"0": 3}}}'],
            [(None, "raw", 0, 4)],
            "3",
            id="the first batch",
        ),
        pytest.param(
            ['{"raw": {"0": 4}, "@topicIds": {"raw": "new"}}'],
            [(None, "raw", 0, 20), (0, "raw@new", 0, 4)],
            None,
            id="another history",
        ),
    ],
)
def test_a_checkpoint_that_would_repeat_offsets_is_found_at_the_start(
    tmp_path: Path,
    batches: list[str],
    archived: list[tuple[int | None, str, int, int]],
    repeated: str | None,
) -> None:
    """Each archived batch is the number of one of this query, or None for one of another query."""
    archive = Archive.at(str(tmp_path / "archive"))
    for number, history, start, end in archived:
        batch = a_batch(number or 0, [(history, 0, start, end)])
        topic_id = (
            {history: history.partition("@")[2] or "old"} if any("@" in one[1] for one in archived) else {}
        )
        query = "other" if number is None else QUERY
        archive.commit(replace(batch, query_id=query, topic_ids=topic_id), lambda _: None)
    checkpoint = a_checkpoint(tmp_path / "checkpoint", *batches)
    if repeated is None:
        check_position(archive, checkpoint)
    else:
        with pytest.raises(
            PermanentStageError, match=f"raw-0 offset {repeated} is archived already in .*/checkpoint"
        ):
            check_position(archive, checkpoint)


def test_a_start_that_does_not_reach_the_cluster_claims_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_response(_: Discovery) -> NoReturn:
        raise RetriableError("The cluster did not respond.", "Check that it runs.")

    monkeypatch.setattr(Discovery, "partitions", no_response)
    context = Context("p", ClusterSettings("127.0.0.1:1"), tmp_path, "checkpoints")
    stage = ArchiveSink("archive", ArchiveSettings(("raw",), "archive"), context)
    archive, spark = Archive.at(stage.path), cast("SparkSession", None)
    for _ in range(2):
        with pytest.raises(RetriableError):
            stage.start(spark, {})
    assert archive.load().number == 0


def test_staged_files_of_a_killed_batch_are_removed_after_its_commit(tmp_path: Path) -> None:
    archive = Archive.at(str(tmp_path))
    archive.commit(a_batch(3, []), lambda _: None)
    for batch in (2, 3, 4):
        archive.files.make_folder(f"_staging/{batch_name(batch, QUERY)}-1a2b3c4d")
    claim_topics(archive, ["raw"])
    assert archive.files.names("_staging") == [f"{batch_name(4, QUERY)}-1a2b3c4d"]


def test_a_manifest_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    (tmp_path / "_manifests").mkdir()
    (tmp_path / "_manifests" / "0000000001.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(PipelineError, match=r"_manifests/0000000001\.json is damaged"):
        Archive.at(str(tmp_path)).load()


def test_a_missing_archive_is_created_only_without_a_checkpoint(tmp_path: Path) -> None:
    archive, checkpoint = Archive.at(str(tmp_path / "archive")), LocalFiles(str(tmp_path / "checkpoint"))
    check_archive(archive, Checkpoint(checkpoint))
    assert archive.exists()
    checkpoint.create("metadata", f'{{"id":"{QUERY}"}}')
    checkpoint.create("commits/0", "v1\n{}")
    with pytest.raises(PipelineError, match="does not hold batch 0"):
        check_archive(archive, Checkpoint(checkpoint))
    archive.commit(a_batch(0, []), lambda _: None)
    check_archive(archive, Checkpoint(checkpoint))
    archive.files.delete("")
    with pytest.raises(PipelineError, match="is gone: it has no folder _manifests"):
        check_archive(archive, Checkpoint(checkpoint))


def test_a_path_that_cannot_be_a_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert list(check_folder(tmp_path / "new" / "deep", "[sinks.a]")) == []
    (finding,) = check_folder(tmp_path / "file" / "below", "[sinks.a]")
    assert "file is a file" in finding.what


@pytest.mark.parametrize(
    ("account", "said"),
    [
        ("java.io.IOException: No space left on device", "is full. Make room there"),
        ("org.apache.hadoop.security.AccessControlException: Permission denied: user=x", "permission denied"),
        (
            "ExitCodeException: Mkdirs failed to create file:/x/y (exists=false)",
            "its folder cannot be created",
        ),
        ("Something\njava.lang.Exception: odd.", "could not be written: java.lang.Exception: odd. Fix that"),
        ("Error while reading file file:///a/x.parquet. bad magic", "file:///a/x.parquet cannot be read"),
    ],
)
def test_a_write_error_says_what_to_do(account: str, said: str) -> None:
    error = write_error("file:///archive", account)
    assert said in str(error)


def test_an_unreadable_file_is_named() -> None:
    account = "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///a/date=1/x.parquet.  SQLSTATE"
    assert "The archive's file file:///a/date=1/x.parquet cannot be read" in str(read_error("u", account))
    assert "could not be read: x" in str(read_error("file:///u", "y\nx."))
