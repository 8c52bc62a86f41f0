from tests.unit.pipeline.archive.archive_samples import a_batch, a_file

from ottla.pipeline.archive.layout import Hour, merge_name
from ottla.pipeline.archive.manifest import DataFile, Manifest, Merge, Slice, combine
from ottla.pipeline.archive.merge import (
    CLOSED_AFTER_MS,
    HOUR_MS,
    KEEP_SUPERSEDED_MS,
    LARGE_BYTES,
    ROUND_BYTES,
    end_ms,
    leftovers,
    mergeable,
    split_into_rounds,
    totals,
)

SEVEN = Hour("raw", "2026-01-31", 7)
END_OF_SEVEN_MS = 1_769_846_400_000


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


def test_superseded_files_and_those_of_dead_merges_are_deleted_after_a_day() -> None:
    now_ms = END_OF_SEVEN_MS
    day_ago_ms = now_ms - KEEP_SUPERSEDED_MS
    early, late = a_file("early", (0, 0, 4)), a_file("late", (0, 5, 9))
    first, second, killed, running = (
        a_file(merge_name(begun_at_ms, run), (0, 0, 9))
        for begun_at_ms, run in ((day_ago_ms, "1"), (now_ms, "2"), (day_ago_ms, "3"), (day_ago_ms + 1, "4"))
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
