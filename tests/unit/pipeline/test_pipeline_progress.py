"""How far a stage is, from Spark's reports and from its checkpoint."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.pipeline.fake_stages import FakeStage

from ottla.pipeline.config import StageDeclaration
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.progress import (
    Progress,
    TopicOffsets,
    position_of,
    progress_of,
    records_behind,
    topic_offsets,
)
from ottla.pipeline.status import local_path, status_of


class Ends:
    def __init__(self, offsets: TopicOffsets | None) -> None:
        self.offsets = offsets

    def of(self, topics: set[str]) -> TopicOffsets | None:
        return self.offsets


def source(end: Any, latest: Any) -> dict[str, Any]:
    return {"endOffset": json.dumps(end), "latestOffset": json.dumps(latest)}


def checkpoint(folder: Path, planned: dict[int, list[str]], committed: list[int]) -> Path:
    for name, batches in (("offsets", planned), ("commits", committed)):
        (folder / name).mkdir(parents=True)
        for batch in batches:
            lines = planned[batch] if name == "offsets" else []
            (folder / name / str(batch)).write_text("\n".join(["v1", "{}", *lines]))
        (folder / name / f".{max(batches, default=0)}.crc").write_bytes(b"\0")
    return folder


def test_progress_is_read_from_sparks_report() -> None:
    report = {
        "batchId": 7,
        "numInputRows": 10,
        "durationMs": {"triggerExecution": 500, "addBatch": 400, "walCommit": 25},
        "sources": [source({"t": {"0": 10}}, {"t": {"0": 25}}), source({"entry": 3}, None)],
        "observedMetrics": {"x": {"dead_letters": 2}, "y": {"other": 1}},
        "stateOperators": [
            {"numRowsDroppedByWatermark": 3, "numRowsTotal": 7, "memoryUsedBytes": 1000},
            {"numRowsDroppedByWatermark": 1, "numRowsTotal": 2, "memoryUsedBytes": 500},
        ],
    }
    phases = {"addBatch": 0.4, "walCommit": 0.025}
    assert progress_of(report) == Progress(7, 10, 20.0, 0.5, 15, 2, 4, phases, 9, 1500)
    assert position_of(report) == {"t": {0: 10}}


def test_a_report_without_numbers_is_no_error() -> None:
    assert progress_of({"batchId": 0, "sources": []}) == Progress(0, 0, 0.0, 0.0, None, None)


def test_of_two_sources_that_read_a_topic_the_slower_one_is_the_position() -> None:
    reads = [source({"t": {"0": 10, "1": 3}}, {}), source({"t": {"0": 4}, "u": {"0": 1}}, {})]
    assert position_of({"sources": reads}) == {"t": {0: 4, 1: 3}, "u": {0: 1}}
    assert position_of({"sources": [source({"entry": 3}, None)]}) is None


def test_records_behind_count_partitions_that_are_new_from_their_beginning() -> None:
    assert records_behind({"t": {0: 5}}, {"t": {0: 7, 1: 3}, "u": {0: 1}}) == 6
    assert records_behind({"t": {0: 9}}, {"t": {0: 7}}) == 0


@pytest.mark.parametrize(
    "offset",
    [
        None,
        "",
        "-",
        {},
        "3",
        {"entry": 3},
        {"t": {"x": 1}},
        {"t": {"0": "1"}},
        {"t": {"0": True}},
        {"gtid": {"0": {}}},
    ],
)
def test_offsets_of_another_form_are_not_counted(offset: Any) -> None:
    assert topic_offsets(offset) is None


def test_the_status_shows_the_last_batch_and_the_one_that_is_not_committed(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, {9: ["{}"], 10: ['{"t": {"0": 5}}', "-"], 11: ["{}"]}, [9, 10])
    item = StageDeclaration("sources", "s", "fake", None, FakeStage)
    status = status_of(item, str(folder), Ends(None))  # type: ignore[arg-type]
    assert (status.batch, status.done) == (10, [{"t": {0: 5}}])
    assert status.state == "batch 11 is running, or runs again at the next start"
    assert status.at is not None


def test_a_stage_that_has_not_run_says_so(tmp_path: Path) -> None:
    item = StageDeclaration("sources", "s", "fake", None, FakeStage)
    status = status_of(item, str(tmp_path), Ends({}))  # type: ignore[arg-type]
    assert (status.state, status.batch, status.behind) == ("not started yet", None, None)


def test_the_status_counts_what_a_stage_is_behind(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, {0: ['{"t": {"0": 5}, "@topicIds": {"t": "id"}}']}, [0])
    item = StageDeclaration("transforms", "s", "transform", None, FakeStage)
    ends = Ends({"t": {0: 8}})
    status = status_of(item, f"file://{folder}", ends)  # type: ignore[arg-type]
    assert (status.state, status.batch, status.behind) == ("all batches committed", 0, 3)
    assert status.done == [{"t": {0: 5}}]
    away = status_of(item, str(folder), Ends(None))  # type: ignore[arg-type]
    assert (away.batch, away.behind) == (0, None)


def test_a_remote_checkpoint_needs_a_client(tmp_path: Path) -> None:
    item = StageDeclaration("sources", "s", "fake", None, FakeStage)
    with pytest.raises(PipelineError, match="can be read only through Spark"):
        status_of(item, "s3a://bucket/cp/s", Ends({}))  # type: ignore[arg-type]
    assert local_path("hdfs://x") is None


def test_a_checkpoint_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    item = StageDeclaration("sources", "s", "fake", None, FakeStage)
    (tmp_path / "commits").write_text("not a folder")
    with pytest.raises(PipelineError, match=f"The checkpoint {tmp_path} cannot be read: .*Not a directory"):
        status_of(item, str(tmp_path), Ends({}))  # type: ignore[arg-type]
