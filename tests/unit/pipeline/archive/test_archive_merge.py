from pathlib import Path
from typing import Any

import pytest
from tests.unit.pipeline.archive.archive_samples import QUERY, a_batch, a_file

from ottla.pipeline.archive import merge as merging
from ottla.pipeline.archive.layout import Hour, batch_name, merge_name
from ottla.pipeline.archive.manifest import DataFile, Manifest, Merge, combine
from ottla.pipeline.archive.merge import (
    CLOSED_AFTER_MS,
    HOUR_MS,
    KEEP_SUPERSEDED_MS,
    KEEP_UNNAMED_MS,
    LARGE_BYTES,
    ROUND_BYTES,
    end_ms,
    leftovers,
    merge,
    mergeable,
    split_into_rounds,
    totals,
)
from ottla.pipeline.archive.slices import Slice
from ottla.pipeline.archive.store import Archive
from ottla.pipeline.errors import PipelineError

SEVEN = Hour("raw", "2026-01-31", 7)
END_OF_SEVEN_MS = 1_769_846_400_000
NO_SPARK: Any = None


def merged(*files: DataFile, now_ms: int) -> dict[Hour, list[DataFile]]:
    return mergeable(combine({1: a_batch(0, [], *files)}), now_ms)


def test_small_files_of_a_past_hour_are_merged() -> None:
    files = [a_file("b", (0, 5, 9)), a_file("a", (0, 0, 4)), a_file("c", (0, 3, 3), hour=6)]
    assert end_ms(SEVEN) == END_OF_SEVEN_MS
    assert merged(*files, now_ms=END_OF_SEVEN_MS + CLOSED_AFTER_MS - 1) == {}
    assert merged(*files, now_ms=END_OF_SEVEN_MS + CLOSED_AFTER_MS) == {SEVEN: [files[1], files[0]]}


def test_a_large_file_stays_as_it_is() -> None:
    files = [a_file("a", (0, 0, 4)), a_file("b", (0, 5, 9), size=LARGE_BYTES // 2)]
    assert merged(*files, now_ms=END_OF_SEVEN_MS + 2 * HOUR_MS) == {}


def test_a_round_takes_whole_hours_up_to_its_size() -> None:
    hours = {SEVEN._replace(hour=hour): [a_file("x", (0, 0, 1), size=ROUND_BYTES // 2)] for hour in range(5)}
    assert [len(files) for files in split_into_rounds(hours)] == [2, 2, 1]
    assert split_into_rounds({}) == []


def test_totals_are_counted_by_hour_and_partition() -> None:
    files = [a_file("a", (0, 0, 4), (1, 7, 7)), a_file("b", (0, 9, 10)), a_file("c", (0, 5, 6), hour=8)]
    assert totals(files) == {
        (SEVEN, 0): Slice(0, 10, 7),
        (SEVEN, 1): Slice(7, 7, 1),
        (SEVEN._replace(hour=8), 0): Slice(5, 6, 2),
    }


def test_superseded_files_are_deleted_after_a_day_and_those_of_dead_merges_after_two() -> None:
    now_ms = END_OF_SEVEN_MS
    day_ago_ms, died_ms = now_ms - KEEP_SUPERSEDED_MS, now_ms - KEEP_UNNAMED_MS
    early, late = a_file("early", (0, 0, 4)), a_file("late", (0, 5, 9))
    first, second, killed, running = (
        a_file(merge_name(begun_at_ms, run), (0, 0, 9))
        for begun_at_ms, run in ((day_ago_ms, "1"), (now_ms, "2"), (died_ms, "3"), (died_ms + 1, "4"))
    )
    lying = [file.path for file in (early, late, first, second, killed, running)]
    history: dict[int, Manifest] = {
        1: a_batch(0, [], early, late),
        2: Merge(day_ago_ms, (first,), (early.path,)),
        3: Merge(now_ms, (second,), (first.path, late.path)),
    }
    assert leftovers(lying, combine(history), now_ms) == [early.path, killed.path]
    assert leftovers(lying, combine(history), now_ms - 1) == []
    assert leftovers(lying, combine(history), now_ms + KEEP_SUPERSEDED_MS) == [
        file.path for file in (early, late, first, killed, running)
    ]


class SlowMerge:
    """Writes a round's files without Spark. `hours` has the hours that each round takes, and the clock goes with it."""

    def __init__(self, path: Path, *hours: int) -> None:
        self.archive = Archive.at(str(path))
        self.now_ms = END_OF_SEVEN_MS + CLOSED_AFTER_MS
        self.hours = list(hours)
        topics = ("fly", "raw")
        small = [a_file(name, (0, at, at), topic=topic) for topic in topics for at, name in enumerate("ab")]
        for file in small:
            self.archive.files.create(file.path, "small")
        self.archive.commit(a_batch(0, [(topic, 0, 0, 2) for topic in topics], *small), lambda _: None)

    def write(self, spark: None, archive: Archive, files: list[DataFile], name: str) -> tuple[DataFile, ...]:
        file = a_file(name, (0, 0, 1), topic=files[0].topic)
        archive.files.create(file.path, "merged")
        self.now_ms += self.hours.pop(0) * HOUR_MS
        # Another merge starts meanwhile.
        archived = self.archive.load()
        merging.delete_leftovers(NO_SPARK, self.archive, archived, archived.histories, self.now_ms)
        return (file,)


def test_rounds_that_take_longer_than_a_day_together_keep_their_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = SlowMerge(tmp_path, 20, 20)
    monkeypatch.setattr(merging, "_write_merged", slow.write)
    spark: Any = None
    began_ms = slow.now_ms
    assert [one.after for one in merge(spark, str(tmp_path), lambda: slow.now_ms)] == [1, 1]
    archived = slow.archive.load()
    assert all(slow.archive.files.exists(path) for path in archived.files)
    assert [one.merged_at_ms - began_ms for one in archived.merges] == [20 * HOUR_MS, 40 * HOUR_MS]


@pytest.mark.parametrize("hours", [24, 25])
def test_a_round_that_takes_longer_than_a_day_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    slow = SlowMerge(tmp_path, 1, hours)
    monkeypatch.setattr(merging, "_write_merged", slow.write)
    spark: Any = None
    with pytest.raises(PipelineError, match="took longer than a day"):
        merge(spark, str(tmp_path), lambda: slow.now_ms)
    assert len(slow.archive.load().merges) == 1


def test_a_round_whose_manifest_is_late_keeps_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last check is in time, and its manifest is not: another merge begins in between."""
    slow = SlowMerge(tmp_path, 23, 0)
    monkeypatch.setattr(merging, "_write_merged", slow.write)
    add = Archive._add

    def add_late(archive: Archive, number: int, manifest: Manifest) -> bool:
        if isinstance(manifest, Merge) and "fly" in manifest.files[0].path:
            slow.now_ms += 2 * HOUR_MS
            merging.delete_leftovers(NO_SPARK, slow.archive, slow.archive.load(), ["fly"], slow.now_ms)
        return add(archive, number, manifest)

    monkeypatch.setattr(Archive, "_add", add_late)
    spark: Any = None
    merge(spark, str(tmp_path), lambda: slow.now_ms)
    archived = slow.archive.load()
    assert len(archived.merges) == 2
    assert all(slow.archive.files.exists(path) for path in archived.files)


def test_a_merge_whose_files_are_gone_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = SlowMerge(tmp_path, 0)

    def write(*given: Any) -> tuple[DataFile, ...]:
        files = slow.write(*given)
        slow.archive.files.delete(files[0].path)
        return files

    monkeypatch.setattr(merging, "_write_merged", write)
    spark: Any = None
    with pytest.raises(PipelineError, match="Nothing was changed"):
        merge(spark, str(tmp_path), lambda: slow.now_ms)
    assert slow.archive.load().merges == ()


def test_the_staging_folder_of_a_dead_merge_is_deleted_after_two_days(tmp_path: Path) -> None:
    """Also if the archive itself, which cleans up when it starts, does not start."""
    slow = SlowMerge(tmp_path)
    files = slow.archive.files
    dead, alive, batch = merge_name(slow.now_ms, "1"), merge_name(slow.now_ms + 1, "2"), batch_name(0, QUERY)
    for name in (dead, alive, batch):
        files.create(f"_staging/{name}/part-0.parquet", "staged")
    later_ms = slow.now_ms + KEEP_UNNAMED_MS + 1
    merging.delete_leftovers(NO_SPARK, slow.archive, slow.archive.load(), ["raw"], later_ms)
    assert files.names("_staging") == [batch, alive]
