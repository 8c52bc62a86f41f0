"""The count of the bytes that a stage has written, which one process adds to and another reads."""

from pathlib import Path

from ottla.pipeline.stage import ClusterSettings, Context
from ottla.pipeline.written_bytes import WrittenBytes


def test_each_batch_adds_to_the_sum_of_the_run(tmp_path: Path) -> None:
    written = WrittenBytes(tmp_path / "orders")
    assert written.read() == 0
    written.add(5)
    WrittenBytes(tmp_path / "orders").add(7)
    assert written.read() == 12
    assert [path.name for path in tmp_path.iterdir()] == ["orders"]


def test_a_count_that_cannot_be_written_stops_no_stage(tmp_path: Path) -> None:
    written = WrittenBytes(tmp_path / "gone" / "orders")
    written.add(5)
    assert written.read() == 0


def test_stages_count_only_for_a_run_whose_metrics_are_served(tmp_path: Path) -> None:
    assert Context("p", ClusterSettings("h:1"), tmp_path, "checkpoints").written("a") is None
    counted = Context("p", ClusterSettings("h:1"), tmp_path, "checkpoints", counts=tmp_path).written("a")
    assert counted is not None
    assert counted.path == tmp_path / "a"
