"""The earlier manifests of an archive are condensed: what they say stays, in few files, whoever is killed meanwhile."""

import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.pipeline.archive.archive_samples import (
    QUERY,
    a_batch,
    a_file,
    a_history,
    add,
    older_fold,
    says,
)

from ottla.model.ids import TopicPartition
from ottla.pipeline.archive import store
from ottla.pipeline.archive.condensed import (
    LEVEL_SIZE,
    Condensed,
    FileList,
    condensed_ranges,
    join,
    levels_to_join,
    list_from_json,
    list_of,
    list_to_json,
    sum_of,
    summary_from_json,
    summary_to_json,
)
from ottla.pipeline.archive.layout import MARKER
from ottla.pipeline.archive.manifest import Archived, Claim, Merge, Summary, combine
from ottla.pipeline.archive.merge import leftovers
from ottla.pipeline.archive.ownership import claim_topics
from ottla.pipeline.archive.ranges import overlaps, spans_by_partition
from ottla.pipeline.archive.store import Archive, Manifests
from ottla.pipeline.errors import PermanentStageError, PipelineError
from ottla.pipeline.files import LocalFiles
from ottla.pipeline.spark.offsets import OffsetRange

AT = TopicPartition("raw", 0)


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Archive:
    monkeypatch.setattr(store, "CONDENSE_AT", 3)
    return Archive.at(str(tmp_path))


def test_a_condensed_history_says_what_its_manifests_say(archive: Archive, tmp_path: Path) -> None:
    history, expected = a_history(35), Archived()
    for number, manifest in sorted(history.items()):
        add(archive, manifest)
        archive.condense()
        expected = combine({one: each for one, each in history.items() if one <= number})
        for reader in (archive, Archive.at(str(tmp_path))):
            assert says(reader.load()) == says(expected)
            assert reader.summary().ends == expected.ends
            assert reader.summary().batches == expected.batches
    now_ms = 2 * 24 * 3_600_000
    paths = [file.path for one in history.values() if not isinstance(one, Claim) for file in one.files]
    assert leftovers(paths, archive.load(), now_ms) == leftovers(paths, expected, now_ms)
    assert len(list((tmp_path / "_manifests").glob("*.json"))) < 3
    assert len(list((tmp_path / "_manifests" / "folded").glob("*.summary.json"))) == 2


def test_the_number_of_lists_grows_with_the_logarithm_of_the_history() -> None:
    levels: list[int] = []
    for _ in range(LEVEL_SIZE**4):
        taken, level = levels_to_join(levels, 0)
        levels = [*levels[: len(levels) - taken], level]
    assert levels == [4]
    assert all(one >= other for one, other in itertools.pairwise(levels))
    # A list of many manifests, as of an archive of an older Ottla, takes smaller ones before it along.
    assert levels_to_join([3, 1, 1, 0], 2) == (3, 2)
    assert levels_to_join([1] * (LEVEL_SIZE - 1), 1) == (LEVEL_SIZE - 1, 2)


def test_each_file_is_written_into_lists_a_few_times() -> None:
    """The cost of a history of N manifests is about N log N."""
    levels: list[tuple[int, int]] = []
    written = 0
    count = LEVEL_SIZE**3
    for _ in range(count):
        taken, level = levels_to_join([one for one, _ in levels], 0)
        size = 1 + sum(size for _, size in levels[len(levels) - taken :])
        levels = [*levels[: len(levels) - taken], (level, size)]
        written += size
        assert len(levels) <= 3 * (LEVEL_SIZE - 1)
    assert written <= 4 * count


def test_a_summary_does_not_grow_with_the_history() -> None:
    def size(count: int) -> int:
        batches = [
            a_batch(one, [("raw", 0, one, one + 1)], a_file(f"{one}", (0, one, one))) for one in range(count)
        ]
        summary = combine(dict(enumerate(batches, start=1)))
        condensed = Condensed(1, replace(summary, ranges=condensed_ranges(summary.ranges)))
        return len(summary_to_json(condensed))

    assert size(400) < size(40) + 10


def test_summaries_and_lists_are_read_as_they_were_written() -> None:
    history = a_history(17)
    archived = combine(history)
    known = {name: getattr(archived, name) for name in Summary.__dataclass_fields__}
    condensed = Condensed(4, Summary(**known), (), {17: "abc"})
    assert summary_from_json(summary_to_json(condensed), 4, "there") == condensed
    listed = list_of(history)
    text = list_to_json(listed)
    indented = json.dumps(json.loads(text), indent=1)
    assert list_from_json(text, "there") == list_from_json(indented, "there") == listed
    assert list_from_json(list_to_json(FileList()), "there") == FileList()
    for part in (text[: len(text) // 2], text[: text.index('],"removed"')], text.replace('.parquet"', "", 1)):
        with pytest.raises(PipelineError, match="The manifest there is damaged"):
            list_from_json(part, "there")
    for text in ("", "{}", '{"version": 2}'):
        with pytest.raises(PipelineError, match="The manifest there is damaged"):
            summary_from_json(text, 1, "there")
        with pytest.raises(PipelineError, match="The manifest there is damaged"):
            list_from_json(text, "there")


@given(st.lists(st.integers(0, 40), max_size=5))
def test_lists_are_joined_in_any_grouping(cuts: list[int]) -> None:
    history = a_history(40)
    edges = sorted({0, 40, *cuts})
    lists = [
        list_of({number: history[number] for number in range(low + 1, high + 1)})
        for low, high in itertools.pairwise(edges)
    ]
    once, again = join(lists), join([join(lists[:2]), *lists[2:]])
    assert once.files == again.files == combine(history).files
    assert once.removed == again.removed == frozenset()


def test_superseded_files_are_remembered_until_a_merge_has_deleted_them() -> None:
    day_ms = 24 * 3_600_000
    old, new = (Merge(at_ms, (), (f"raw/{at_ms}",)) for at_ms in (day_ms, 9 * day_ms))
    assert join([list_of({1: old}), list_of({2: new})]).merges == (new,)
    newer = Merge(3 * day_ms, (), ("raw/x",))
    assert join([list_of({1: old}), list_of({2: newer})]).merges == (old, newer)


def test_merges_of_another_history_make_no_superseded_file_forgotten() -> None:
    """The stage of the one may be idle, while that of the other merges on."""
    day_ms = 24 * 3_600_000
    idle = Merge(day_ms, (), ("fly/date=2026-01-31/hour=07/b0-000.parquet",))
    busy = Merge(30 * day_ms, (), ("raw/date=2026-01-31/hour=07/b0-000.parquet",))
    assert join([list_of({1: idle}), list_of({2: busy})]).merges == (idle, busy)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9))))
def test_condensed_ranges_cover_the_same_offsets_and_the_same_twice(pairs: list[tuple[int, int]]) -> None:
    ranges = [OffsetRange("raw", 0, start, start + size) for start, size in pairs]
    condensed = condensed_ranges(ranges)
    assert len(condensed) <= max(1, len(ranges))
    before, after = (spans_by_partition(one).get(AT, []) for one in (ranges, condensed))
    assert overlaps(after) == overlaps(before)
    assert {offset for span in after for offset in range(*span)} == {
        offset for span in before for offset in range(*span)
    }


def test_a_number_that_was_condensed_is_not_given_twice(archive: Archive, tmp_path: Path) -> None:
    sleeper = Archive.at(str(tmp_path))
    batches = {number: a_batch(number, [("raw", 0, number, number + 1)]) for number in range(1, 7)}
    for number in (1, 2, 3):
        archive.commit(batches[number], lambda _: None)
    seen: list[int] = []

    def overslept(summary: Summary) -> None:
        if not seen:
            for number in (4, 5):
                archive.commit(batches[number], lambda _: None)
            archive.condense()
        seen.append(summary.number)

    sleeper.commit(batches[6], overslept)
    assert seen == [3, 5]
    assert archive.summary().batches == {QUERY: 6}
    assert archive.load().ranges == (OffsetRange("raw", 0, 1, 6), OffsetRange("raw", 0, 6, 7))
    # The number that the sleeper got again does not count, and goes with the next look.
    archive.condense()
    assert [path.name for path in (tmp_path / "_manifests").glob("*.json")] == ["0000000006.json"]


def test_a_writer_whose_manifest_is_condensed_at_once_knows_that_it_was_added(
    archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Archive.at(str(tmp_path))
    for number in (1, 2):
        archive.commit(a_batch(number, [("raw", 0, number, number + 1)]), lambda _: None)
    create = archive.files.create

    def create_and_sleep(path: str, content: str | bytes) -> bool:
        done = create(path, content)
        other.condense()
        return done

    monkeypatch.setattr(archive.files, "create", create_and_sleep)
    checks: list[int] = []
    archive.commit(a_batch(3, [("raw", 0, 3, 4)]), lambda summary: checks.append(summary.number))
    assert checks == [2]
    assert (other.summary().number, other.recent().manifests) == (3, {})


def test_a_merge_whose_number_is_forgotten_is_not_repeated(archive: Archive) -> None:
    small, merged = [a_file(name, (0, at, at)) for at, name in enumerate("ab")], a_file("m", (0, 0, 1))
    archive.commit(a_batch(0, [("raw", 0, 0, 2)], *small), lambda _: None)
    merge = Merge(99, (merged,), tuple(file.path for file in small))

    def check(archived: Archived) -> None:
        assert small[0].path in archived.files

    for _ in range(2):
        archive.commit_merge(merge, check)
    assert archive.load().number == 2


STEPS = ["the list", "the marker", "the summary", "a deletion"]


@pytest.mark.parametrize("survived", range(4), ids=STEPS)
@pytest.mark.parametrize("count", [3, 14])
def test_a_process_that_is_killed_while_it_condenses_changes_nothing(
    archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, survived: int, count: int
) -> None:
    history = a_history(count)
    for number, manifest in sorted(history.items()):
        add(archive, manifest)
        if number < count - 2:
            archive.condense()
    expected = says(combine(history))
    with monkeypatch.context() as killed:
        steps = itertools.count()
        for name in ("create", "delete"):
            monkey_patch_step(killed, archive, name, steps, survived)
        with pytest.raises(pytest.fail.Exception):
            archive.condense()
    assert says(Archive.at(str(tmp_path)).load()) == expected
    claim_topics(Archive.at(str(tmp_path)), ["raw"])
    assert says(Archive.at(str(tmp_path)).load()).files == expected.files
    named = {one.name for one in archive.recent().condensed.lists}
    assert set(archive.files.names("_manifests/files")) == named


@pytest.mark.parametrize("survived", range(4), ids=STEPS)
@pytest.mark.parametrize("has_manifest", [True, False])
def test_a_process_that_is_killed_while_it_condenses_folds_of_an_older_ottla_changes_nothing(
    archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, survived: int, has_manifest: bool
) -> None:
    history = a_history(9)
    archive.files.create("_manifests/folded/0000000001-0000000009.json", older_fold(history))
    if has_manifest:
        archive.commit(a_batch(10, [("raw", 0, 10, 11)]), lambda _: None)
    expected = says(archive.load())
    with monkeypatch.context() as killed:
        steps = itertools.count()
        for name in ("create", "delete"):
            monkey_patch_step(killed, archive, name, steps, survived)
        with pytest.raises(pytest.fail.Exception):
            archive.condense()
    for _ in range(2):
        assert says(Archive.at(str(tmp_path)).load()) == expected
        Archive.at(str(tmp_path)).condense()
        archive.remove_condensed()
    assert archive.files.names("_manifests/folded") == [
        "0000000000-0000000000.json",
        "0000000001.summary.json",
    ]


def monkey_patch_step(
    killed: pytest.MonkeyPatch, archive: Archive, name: str, steps: Iterator[int], survived: int
) -> None:
    """The process is killed after so many files were created or deleted."""
    step = getattr(archive.files, name)

    def step_or_die(*given: str) -> object:
        if next(steps) == survived:
            pytest.fail("killed")
        return step(*given)

    killed.setattr(archive.files, name, step_or_die)


def test_two_processes_that_condense_at_once_leave_one_history(archive: Archive, tmp_path: Path) -> None:
    history = a_history(23)
    for manifest in history.values():
        add(archive, manifest)
    other = Archive.at(str(tmp_path))
    create_file = other.files.create
    seen: list[str] = []

    def create(path: str, content: str | bytes) -> bool:
        # Just before its first file the other process condenses, and removes what it replaced.
        if not seen:
            seen.append(path)
            archive.condense()
        return create_file(path, content)

    other.files.create = create  # type: ignore[method-assign]
    other.condense()
    for reader in (archive, other, Archive.at(str(tmp_path))):
        assert says(reader.load()) == says(combine(history))
    assert len(archive.files.names("_manifests/files")) == 1


def test_a_summary_that_comes_too_late_does_not_count(archive: Archive, tmp_path: Path) -> None:
    history = a_history(15)
    late = Archive.at(str(tmp_path))
    recent = late.recent()
    for number, manifest in sorted(history.items()):
        add(archive, manifest)
        if number == 4:
            recent = late.recent()
        if number > 4:
            archive.condense()
    late._condense(recent, Summary(number=4))
    for reader in (archive, late, Archive.at(str(tmp_path))):
        assert says(reader.load()) == says(combine(history))


def test_a_manifest_that_is_condensed_while_it_is_read_is_read_from_the_summary(
    archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = a_history(3)
    for manifest in history.values():
        add(archive, manifest)
    files = LocalFiles(str(tmp_path))
    read = files.read

    def condensed_first(path: str) -> str:
        archive.condense()
        return read(path)

    monkeypatch.setattr(files, "read", condensed_first)
    assert says(Manifests(files).load()) == says(combine(history))


def test_the_folds_of_an_older_ottla_are_condensed(archive: Archive, tmp_path: Path) -> None:
    history = a_history(50)
    early = {number: one for number, one in history.items() if number <= 30}
    archive.files.create("_manifests/folded/0000000001-0000000030.json", older_fold(early))
    for number in range(31, 51):
        archive.files.create(f"_manifests/{number:010}.json", store.to_json(history[number]))
    assert archive.load() == combine(history)
    archive.condense()
    assert says(Archive.at(str(tmp_path)).load()) == says(combine(history))
    assert archive.files.names("_manifests/folded") == [
        "0000000000-0000000000.json",
        "0000000001.summary.json",
    ]


def test_what_an_older_ottla_folds_meanwhile_is_kept(
    archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had read the folder before the marker was there, and still archives another topic."""
    history = a_history(8)
    for number in range(1, 7):
        add(archive, history[number])
    create = archive.files.create

    def create_and_fold(path: str, content: str | bytes) -> bool:
        done = create(path, content)
        if path.endswith(".summary.json"):
            create("_manifests/folded/0000000001-0000000008.json", older_fold(history))
            for number in range(1, 9):
                archive.files.delete(f"_manifests/{number:010}.json")
        return done

    with monkeypatch.context() as raced:
        raced.setattr(archive.files, "create", create_and_fold)
        archive.condense()
    assert says(Archive.at(str(tmp_path)).load()) == says(combine(history))
    add(archive, a_batch(9, [("raw", 0, 9, 10)]))
    for _ in range(2):
        archive.condense()
    assert says(archive.load()) == says(combine(history | {9: a_batch(9, [("raw", 0, 9, 10)])}))
    assert "0000000001-0000000008.json" not in archive.files.names("_manifests/folded")


def test_the_marker_is_there_before_the_first_summary(
    archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = a_history(3)
    for manifest in history.values():
        add(archive, manifest)
    create, seen = archive.files.create, []

    def create_marked(path: str, content: str | bytes) -> bool:
        if path.endswith(".summary.json"):
            seen.append(archive.files.exists(MARKER))
            assert Archive.at(str(tmp_path)).load() == combine(history)
        return create(path, content)

    monkeypatch.setattr(archive.files, "create", create_marked)
    archive.condense()
    assert seen == [True]


def test_an_older_ottla_rejects_a_condensed_archive(archive: Archive) -> None:
    for manifest in a_history(3).values():
        add(archive, manifest)
    archive.condense()
    # It reads every file of this form as a fold of version 1.
    assert json.loads(archive.files.read(MARKER)) == {"version": 2}


def test_a_summary_that_is_lost_is_an_error_and_no_empty_archive(archive: Archive, tmp_path: Path) -> None:
    for manifest in a_history(9).values():
        add(archive, manifest)
        archive.condense()
    for path in (tmp_path / "_manifests" / "folded").glob("*.summary.json"):
        path.unlink()
    with pytest.raises(PipelineError, match=r"A part of the manifests of the archive at .* is missing"):
        Archive.at(str(tmp_path)).summary()


def test_the_newest_summary_that_is_lost_is_an_error_and_the_one_before_it_does_not_stand_in(
    archive: Archive, tmp_path: Path
) -> None:
    for number, manifest in a_history(6).items():
        add(archive, manifest)
        if number % 3 == 0:
            archive.condense()
    lost = tmp_path / "_manifests" / "folded" / "0000000002.summary.json"
    content = lost.read_bytes()
    lost.unlink()
    for reader in (Archive.at(str(tmp_path)).summary, Archive.at(str(tmp_path)).load):
        with pytest.raises(PipelineError, match=r"is missing: .*0000000002\.summary\.json"):
            reader()
    lost.write_bytes(content)
    assert Archive.at(str(tmp_path)).summary().number == 6


def test_a_list_that_is_lost_is_an_error(archive: Archive, tmp_path: Path) -> None:
    for manifest in a_history(3).values():
        add(archive, manifest)
    archive.condense()
    (lost,) = (tmp_path / "_manifests" / "files").iterdir()
    lost.unlink()
    assert Archive.at(str(tmp_path)).summary().number == 3
    with pytest.raises(PipelineError, match=rf"is missing: .*{lost.name}"):
        Archive.at(str(tmp_path)).load()


def test_a_manifest_that_is_missing_is_reported_and_nothing_is_condensed_until_it_is_back(
    archive: Archive, tmp_path: Path
) -> None:
    history = a_history(9)
    for manifest in history.values():
        add(archive, manifest)
    lost = tmp_path / "_manifests" / "0000000004.json"
    content = lost.read_bytes()
    lost.unlink()
    archive.condense()
    assert Archive.at(str(tmp_path)).summary().missing == (4,)
    assert Archive.at(str(tmp_path)).recent().condensed.sequence == 0
    lost.write_bytes(content)
    archive.condense()
    assert says(Archive.at(str(tmp_path)).load()) == says(combine(history))


def test_a_run_that_lost_its_topic_is_fenced_by_a_condensed_claim(archive: Archive, tmp_path: Path) -> None:
    first = claim_topics(archive, ["raw"])
    second = claim_topics(Archive.at(str(tmp_path)), ["raw"])
    for number in range(7):
        archive.commit(a_batch(number, []), second.check)
        archive.condense()
    assert archive.recent().condensed.summary.number > 2
    with pytest.raises(PermanentStageError, match="no longer archives the topic raw"):
        archive.commit(a_batch(8, []), first.check)


def test_what_is_known_only_from_lists_is_read_only_for_files(
    archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cost of a batch does not depend on the number of files."""
    for manifest in a_history(15).values():
        add(archive, manifest)
        archive.condense()
    files = LocalFiles(str(tmp_path))
    read: list[str] = []
    text = files.read

    def counted(path: str) -> str:
        read.append(path)
        return text(path)

    monkeypatch.setattr(files, "read", counted)
    reader = Archive(files)
    assert reader.summary().ends[AT] == 15
    reader.commit(a_batch(16, [("raw", 0, 16, 17)]), lambda _: None)
    assert not [path for path in read if "/files/" in path]
    assert sum_of(reader.recent().condensed, []).files == {}
