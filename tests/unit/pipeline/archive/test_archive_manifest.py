from dataclasses import replace

import pytest
from tests.unit.pipeline.archive.archive_samples import QUERY, a_batch, a_file, older_fold

from ottla.model.ids import TopicPartition
from ottla.pipeline.archive.layout import (
    MANIFEST_NAME,
    batch_name,
    final_names,
    hour_of,
    is_abandoned,
    manifest_file,
    staged_file,
)
from ottla.pipeline.archive.manifest import (
    Claim,
    Manifest,
    Merge,
    combine,
    fold_from_json,
    from_json,
    to_json,
)
from ottla.pipeline.errors import PipelineError

SMALL, OTHER, LARGE = (
    a_file("one", (0, 0, 4)),
    a_file("two", (0, 5, 9), (3, 2, 2)),
    a_file("merged", (0, 0, 9)),
)
FIRST = a_batch(0, [("raw", 0, 0, 5)], SMALL)
SECOND = a_batch(1, [("raw", 0, 5, 12), ("raw", 3, 2, 3)], OTHER)
MERGE = Merge(99, (LARGE,), (SMALL.path, OTHER.path))
CLAIM = Claim("5eed", "process 7 on here", 98, ("raw",))
HISTORY: dict[int, Manifest] = {1: CLAIM, 2: FIRST, 3: SECOND, 4: MERGE}


@pytest.mark.parametrize("manifest", list(HISTORY.values()))
def test_a_manifest_is_read_as_it_was_written(manifest: Manifest) -> None:
    assert from_json(to_json(manifest), "there") == manifest


def test_a_file_counts_from_its_batch_until_a_merge_replaces_it() -> None:
    assert set(combine({1: FIRST, 2: SECOND}).files) == {SMALL.path, OTHER.path}
    assert set(combine(HISTORY).files) == {LARGE.path}


def test_merges_apply_in_the_order_of_their_numbers() -> None:
    again = Merge(100, (a_file("again", (0, 0, 9)),), (LARGE.path,))
    assert set(combine({5: again, **HISTORY}).files) == {again.files[0].path}


def test_starts_and_ends_include_offsets_without_records() -> None:
    archived = combine(HISTORY)
    assert archived.ends == {TopicPartition("raw", 0): 12, TopicPartition("raw", 3): 3}
    assert archived.starts == {TopicPartition("raw", 0): 0, TopicPartition("raw", 3): 2}
    assert archived.topics == ["raw"]


def test_the_history_has_the_last_batch_of_a_query_and_the_owner_of_a_topic() -> None:
    newer = replace(CLAIM, run="f00d")
    assert combine({**HISTORY, 7: newer}).owners == {"raw": newer}
    assert (combine(HISTORY).number, combine(HISTORY).batches) == (4, {QUERY: 1})


def test_a_fold_of_an_older_ottla_has_all_content_of_its_manifests() -> None:
    assert fold_from_json(older_fold(HISTORY), "there") == HISTORY
    with pytest.raises(PipelineError, match="The manifest there is damaged"):
        fold_from_json('{"version": 1, "manifests": {"1": {}}}', "there")


@pytest.mark.parametrize(
    ("name", "is_dead"),
    [
        ("0000000004-ded036006db7-1a2b3c4d", True),
        ("0000000005-ded036006db7-1a2b3c4d", False),
        ("0000000001-another0query-1a2b3c4d", False),
        ("merge-99-1a2b3c4d", True),
        ("merge-100-1a2b3c4d", False),
        ("somebody's", False),
    ],
)
def test_staging_of_a_committed_batch_or_an_old_merge_is_abandoned(name: str, is_dead: bool) -> None:
    assert is_abandoned(name, {"ded036006db7": 4}, before_ms=100) == is_dead


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"version": 1}', to_json(FIRST)[:-20], '{"version": null}x']
)
def test_a_damaged_manifest_is_named(text: str) -> None:
    with pytest.raises(
        PipelineError, match=r"The manifest /there/x\.json is damaged: .* Restore it from a copy"
    ):
        from_json(text, "/there/x.json")


def test_a_manifest_of_a_newer_version_is_rejected() -> None:
    with pytest.raises(PipelineError, match="has version 2, which this version of Ottla does not support"):
        from_json('{"version": 2}', "x")


def test_staged_files_get_names_of_their_batch_numbered_within_the_hour() -> None:
    hour, earlier = ("a/_staging/x/_topic=raw/_hour=" + hours for hours in ("491575", "-1"))
    paths = [
        f"{folder}/_task={task}/part-0.parquet" for folder, task in ((hour, 10), (hour, 9), (earlier, 9))
    ]
    found = [staged_file(path, 7) for path in paths]
    staged = [file for file in found if file is not None]
    assert [(file.path, file.bytes, file.task) for file in staged] == [
        (path, 7, task) for path, task in zip(paths, (10, 9, 9), strict=True)
    ]
    final = final_names(staged, batch_name(12, QUERY))
    assert final == [
        "raw/date=2026-01-29/hour=07/0000000012-ded036006db7-001.parquet",
        "raw/date=2026-01-29/hour=07/0000000012-ded036006db7-000.parquet",
        "raw/date=1969-12-31/hour=23/0000000012-ded036006db7-000.parquet",
    ]
    assert [hour_of(path) for path in final] == [file.hour for file in staged]
    assert staged_file("a/_staging/x/_topic=raw/_hour=-1/_task=9/.part-0.parquet.crc", 7) is None


def test_only_complete_names_are_manifests() -> None:
    name = manifest_file(3).rpartition("/")[2]
    assert MANIFEST_NAME.fullmatch(name)
    assert not MANIFEST_NAME.fullmatch(f".{name}.9f3c")
    assert not MANIFEST_NAME.fullmatch(f"{name}.9f3c")
