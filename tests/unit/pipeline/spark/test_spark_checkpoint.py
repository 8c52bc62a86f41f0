"""What Spark's checkpoint of a query says."""

from pathlib import Path

import pytest

from ottla.model.ids import TopicPartition
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.files import LocalFiles
from ottla.pipeline.spark.checkpoint import Checkpoint

AT = TopicPartition("raw", 0)


def write_batches(folder: Path, offsets: dict[int, str], committed: list[int]) -> Checkpoint:
    """`offsets` are the lines of the sources, by batch."""
    for name in ("offsets", "commits"):
        (folder / name).mkdir()
        (folder / name / ".10.crc").write_bytes(b"\0")
    for batch, lines in offsets.items():
        (folder / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{lines}")
    for batch in committed:
        (folder / "commits" / str(batch)).write_text("v1\n{}")
    return Checkpoint(LocalFiles(str(folder)))


def test_a_query_that_never_started_has_no_checkpoint(tmp_path: Path) -> None:
    checkpoint = Checkpoint.at(str(tmp_path))
    assert checkpoint.query_id() is None
    assert checkpoint.last_planned() is None
    assert checkpoint.last_committed() is None
    assert checkpoint.last_offset() is None
    assert checkpoint.source_offsets(0) == []
    assert checkpoint.topic_offsets(-1) == {}


def test_the_query_id_is_read_from_the_metadata(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text('{"id":"6d1f3c1e"}')
    assert Checkpoint.at(f"file://{tmp_path}").query_id() == "6d1f3c1e"


def test_batches_are_compared_as_numbers(tmp_path: Path) -> None:
    checkpoint = write_batches(tmp_path, {9: "{}", 10: '{"t": {"0": 5}}\n-', 11: "{}"}, [9, 10])
    assert (checkpoint.last_planned(), checkpoint.last_committed()) == (11, 10)
    assert checkpoint.source_offsets(10) == [{"t": {"0": 5}}]


def test_an_offset_that_is_not_json_is_kept_as_text(tmp_path: Path) -> None:
    assert write_batches(tmp_path, {0: "file 7"}, []).source_offsets(0) == ["file 7"]


def test_the_newest_planned_batch_says_how_far_a_source_came(tmp_path: Path) -> None:
    checkpoint = write_batches(tmp_path, {n: f'{{"chunk":1,"gtid":"0-1-{n}"}}' for n in (9, 10)}, [])
    assert checkpoint.last_offset() == {"chunk": 1, "gtid": "0-1-10"}


def test_the_offset_log_says_where_a_batch_ends(tmp_path: Path) -> None:
    assert write_batches(tmp_path, {3: '{"raw": {"0": 7}}'}, []).topic_offsets(3) == {AT: 7}


@pytest.mark.parametrize("text", ["", "v2\n{}\n{}", "v1\n{}\n-", 'v1\n{}\n{"raw": 7}'])
def test_an_unreadable_offset_log_is_named(tmp_path: Path, text: str) -> None:
    checkpoint = write_batches(tmp_path, {}, [])
    (tmp_path / "offsets" / "3").write_text(text)
    with pytest.raises(PipelineError, match="/offsets/3 cannot be read"):
        checkpoint.topic_offsets(3)
