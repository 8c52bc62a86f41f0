from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.unit.pipeline.archive.archive_samples import QUERY, a_batch, a_file, an_archive

from ottla.model.ids import TopicPartition
from ottla.pipeline.archive import batch_writer
from ottla.pipeline.archive.batch_writer import (
    BatchWriter,
    _remove_earlier_attempts,
    batch_ranges,
    expected_records,
    logs_of,
)
from ottla.pipeline.archive.layout import batch_name
from ottla.pipeline.archive.manifest import Archived, DataFile, Merge
from ottla.pipeline.archive.ownership import claim_topics
from ottla.pipeline.archive.ranges import Span
from ottla.pipeline.archive.sizing import Sizing
from ottla.pipeline.archive.stage import starting_offsets
from ottla.pipeline.archive.staging import OrderedFiles
from ottla.pipeline.archive.store import Archive
from ottla.pipeline.errors import PipelineError, RetriableError
from ottla.pipeline.files import LocalFiles
from ottla.pipeline.spark.checkpoint import Checkpoint
from ottla.pipeline.spark.discovery import Discovery
from ottla.pipeline.spark.offsets import EARLIEST, OffsetRange, Offsets

AT = TopicPartition("raw", 0)


@pytest.mark.parametrize(
    ("start", "end", "log", "read", "covered"),
    [
        pytest.param(10, 20, (0, 20), [(10, 20)], [(10, 20)], id="all of it"),
        pytest.param(
            10, 20, (0, 20), [(14, 20)], [(10, 20)], id="a hole at the beginning that compaction left"
        ),
        pytest.param(10, 20, (0, 20), [], [(10, 20)], id="control records only"),
        pytest.param(10, 20, (15, 20), [(10, 20)], [(10, 20)], id="deleted after it was read"),
        pytest.param(10, 20, (15, 20), [(15, 20)], [(15, 20)], id="deleted before it was read"),
        pytest.param(
            10, 20, (15, 20), [(17, 20)], [(15, 20)], id="deleted before it was read, with a hole behind"
        ),
        pytest.param(0, 20, (15, 20), [(0, 5), (15, 20)], [(0, 5), (15, 20)], id="deleted while it was read"),
        pytest.param(
            0, 20, (15, 30), [(0, 5), (7, 9)], [(0, 5), (7, 9), (15, 20)], id="deleted twice meanwhile"
        ),
        pytest.param(10, 20, (30, 40), [], [], id="deleted altogether"),
        pytest.param(10, 20, (30, 40), [(10, 13)], [(10, 13)], id="deleted altogether while it was read"),
        pytest.param(10, 20, (0, 16), [(10, 13)], [(10, 16)], id="truncated before it was read"),
        pytest.param(10, 20, (0, 12), [(10, 14)], [(10, 14)], id="truncated after it was read"),
        pytest.param(
            10, 20, (0, 12), [(10, 12), (15, 17)], [(10, 12), (15, 17)], id="truncated while it was read"
        ),
        pytest.param(10, 20, None, [(10, 13), (15, 17)], [(10, 13), (15, 17)], id="gone while it was read"),
        pytest.param(10, 20, None, [], [], id="gone before it was read"),
        pytest.param(
            None, 20, (5, 20), [(5, 20)], [(5, 20)], id="the first batch of a topic that begins later"
        ),
        pytest.param(
            None, 20, (5, 20), [(9, 20)], [(5, 20)], id="the first batch, with a hole at the beginning"
        ),
        pytest.param(
            None, 20, (9, 20), [(5, 20)], [(5, 20)], id="the first batch, deleted after it was read"
        ),
        pytest.param(None, 0, (0, 0), [], [], id="a partition that enters empty"),
        pytest.param(7, 7, (0, 7), [], [], id="nothing new"),
    ],
)
def test_a_batch_covers_what_was_read_and_what_never_had_records(
    start: int | None,
    end: int,
    log: tuple[int, int] | None,
    read: list[tuple[int, int]],
    covered: list[tuple[int, int]],
) -> None:
    before: Offsets = {} if start is None else {AT: start}
    logs = {} if log is None else {AT: Span(*log)}
    found = batch_ranges(before, {AT: end}, logs, {AT: [Span(*one) for one in read]})
    assert found == tuple(OffsetRange(*AT, *one) for one in covered)


@pytest.mark.parametrize("is_merged", [False, True])
def test_files_of_an_earlier_attempt_are_removed_also_if_a_merge_took_the_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_merged: bool
) -> None:
    asked: list[Sequence[str]] = []

    def all_of_them(spark: None, archive: Archive, archived: Archived, paths: Sequence[str]) -> Sequence[str]:
        asked.append(paths)
        return paths

    monkeypatch.setattr(batch_writer, "deletable", all_of_them)
    archive = Archive.at(str(tmp_path))
    batch, other = batch_name(7, QUERY), batch_name(70, QUERY)
    killed, added, later = (
        a_file(f"{name}", (0, 0, 9)) for name in (f"{batch}-1a", f"{batch}-2b", f"{other}-2b")
    )
    for file in (killed, added, later):
        archive.files.create(file.path, "records")
    archive.commit(a_batch(7, [("raw", 0, 0, 10)], added), lambda _: None)
    if is_merged:
        merged = a_file("merge-99-3c", (0, 0, 9))
        archive.commit_merge(Merge(99, (merged,), (added.path,)), lambda _: None)
    _remove_earlier_attempts(None, archive, batch)
    assert asked == [[killed.path]]
    assert [found.path for found in archive.files.below("raw")] == [added.path, later.path]


class FakeCluster:
    """It has one partition, and no answer about others."""

    def topics(self) -> dict[str, SimpleNamespace]:
        return {"raw": SimpleNamespace(partitions={0: None})}

    def earliest(self, partitions: Collection[TopicPartition]) -> Offsets:
        assert set(partitions) <= {AT}
        return dict.fromkeys(partitions, 3)

    def latest(self, partitions: Collection[TopicPartition]) -> Offsets:
        assert set(partitions) <= {AT}
        return dict.fromkeys(partitions, 9)


def test_only_partitions_that_exist_are_asked_for_their_offsets() -> None:
    cluster: Any = FakeCluster()
    gone, removed = TopicPartition("gone", 0), TopicPartition("raw", 1)
    assert logs_of(cluster, [gone, AT, removed]) == {AT: Span(3, 9)}
    assert logs_of(cluster, []) == {}


def test_a_batch_expects_as_many_records_as_its_offsets() -> None:
    assert expected_records({AT: 5}, {AT: 25, TopicPartition("raw", 1): 7}) == 27


def test_a_new_query_starts_after_the_archived_offsets() -> None:
    archived = an_archive(("raw", 0, 0, 10), ("raw", 1, 0, 10))
    other, new = TopicPartition("raw", 1), TopicPartition("raw", 2)
    earliest, latest = {AT: 0, other: 30, new: 3}, {AT: 50, other: 50, new: 50}
    assert starting_offsets(archived.ends, earliest, latest) == {AT: 10, other: 30, new: EARLIEST}
    assert starting_offsets({}, earliest, latest) == dict.fromkeys(earliest, EARLIEST)


def test_a_topic_that_lost_records_is_rejected() -> None:
    with pytest.raises(PipelineError, match="raw-0 is archived up to offset 10, but ends at 4"):
        starting_offsets({AT: 10}, {AT: 0}, {AT: 4})


class Again:
    """A topic that is deleted, and perhaps created again, while a batch of its records 0 to 9 is read."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, *, fail_on_data_loss: bool) -> None:
        self.ids = {"raw": "old", "fly": "flying"}
        self.id_at_end: str | None = "new"
        self.files: tuple[DataFile, ...] = (a_file("x", (0, 0, 9)), a_file("x", (0, 0, 9), topic="fly"))
        self.archive = Archive.at(str(folder / "archive"))
        monkeypatch.setattr(batch_writer, "archived_rows", lambda rows, _: rows)
        ids = '"@topicIds": {"raw": "old", "fly": "flying"}'
        line = f'{{"raw": {{"0": 10}}, "fly": {{"0": 10}}, "@start": {{"raw": {{"0": 0}}, "fly": {{"0": 0}}}}, {ids}}}'
        checkpoint = LocalFiles(str(folder / "checkpoint"))
        checkpoint.create("offsets/0", f"v1\n{{}}\n{line}")
        cluster, sizing = cast("Discovery", self), Sizing(100.0, 1)
        self.writer = BatchWriter(
            self.archive,
            claim_topics(self.archive, ["raw", "fly"]),
            Checkpoint(checkpoint),
            cluster,
            sizing,
            {},
            is_delta=False,
            fail_on_data_loss=fail_on_data_loss,
            batch_offsets=10,
        )
        self.writer.files = cast("OrderedFiles", self)

    def write(self, archive: Archive, *_: object) -> tuple[DataFile, ...]:
        for file in self.files:
            archive.files.create(file.path, "records")
        if self.id_at_end is None:
            self.ids.pop("raw", None)
        else:
            self.ids["raw"] = self.id_at_end
        return self.files

    def add(self) -> Archived:
        rows: Any = SimpleNamespace(sparkSession=None)
        self.writer.add(rows, 0, QUERY)
        return self.archive.load()

    # as a cluster

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        return {topic: self.ids[topic] for topic in topics if topic in self.ids}

    def topics(self) -> dict[str, SimpleNamespace]:
        return {topic: SimpleNamespace(partitions={0: None}) for topic in self.ids}

    def earliest(self, partitions: Collection[TopicPartition]) -> Offsets:
        return dict.fromkeys(partitions, 0)

    def latest(self, partitions: Collection[TopicPartition]) -> Offsets:
        return dict.fromkeys(partitions, 10)


@pytest.mark.parametrize(
    ("fail_on_data_loss", "id_at_end"), [(True, "new"), (True, None), (False, "new")], ids=str
)
def test_a_batch_that_may_have_records_of_a_new_topic_is_not_archived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fail_on_data_loss: bool, id_at_end: str | None
) -> None:
    again = Again(tmp_path, monkeypatch, fail_on_data_loss=fail_on_data_loss)
    again.id_at_end = id_at_end
    with pytest.raises(RetriableError, match="The topic raw was deleted while batch 0 read it"):
        again.add()
    assert again.archive.load().ranges == ()
    assert not any(again.archive.files.exists(file.path) for file in again.files)


def test_a_batch_without_records_of_the_new_topic_is_archived_without_its_offsets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is read again after the topic was created again, if loss is allowed."""
    again = Again(tmp_path, monkeypatch, fail_on_data_loss=False)
    again.files = again.files[1:]
    assert again.add().ranges == (OffsetRange("fly", 0, 0, 10),)


@pytest.mark.parametrize(
    ("fail_on_data_loss", "id_at_end"), [(True, "old"), (False, "old"), (False, None)], ids=str
)
def test_a_batch_of_a_topic_that_is_the_same_or_was_read_before_it_was_deleted_is_archived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fail_on_data_loss: bool, id_at_end: str | None
) -> None:
    again = Again(tmp_path, monkeypatch, fail_on_data_loss=fail_on_data_loss)
    again.id_at_end = id_at_end
    read = {AT: [Span(0, 10)]}
    monkeypatch.setattr(batch_writer, "_spans_outside", lambda *_: read if id_at_end is None else {})
    assert again.add().ranges == (OffsetRange("fly", 0, 0, 10), OffsetRange("raw", 0, 0, 10))
