"""Replays: names, starts and pairs of topics, and the lines of a comparison."""

from pathlib import Path

import pytest

from ottla.admin.position import EARLIEST, Position
from ottla.pipeline.config import parse
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.replay.command import parse_start, read_logic, replay_name, topic_pairs
from ottla.pipeline.replay.comparison import Comparison, Difference, describe
from ottla.pipeline.replay.planning import ArchiveStage, archives_of
from ottla.pipeline.transform.settings import TransformSettings

SETTINGS = TransformSettings(from_="raw", to="orders", function="t.py:clean")


def test_a_replay_starts_at_the_beginning_or_at_a_time() -> None:
    assert parse_start("earliest") == EARLIEST
    assert parse_start("2026-03-01T12:00:00Z") == Position("time", 1_772_366_400_000)
    with pytest.raises(PipelineError, match="cannot start at 'yesterday'"):
        parse_start("yesterday")


def test_other_logic_or_another_start_is_another_replay() -> None:
    name = replay_name("clean", SETTINGS, "new", "earliest", "logic")
    assert name.startswith("clean.replay.new.")
    assert name == replay_name("clean", SETTINGS, "new", "earliest", "logic")
    assert name != replay_name("clean", SETTINGS, "new", "earliest", "corrected")
    assert name != replay_name("clean", SETTINGS, "new", "2026-03-01", "logic")


PIPELINE = """
name = "p"

[cluster]
bootstrap = "127.0.0.1:1"

[sinks.first]
kind = "archive"
topics = ["raw", "other"]
path = "one"

[sinks.second]
kind = "archive"
topics = ["raw", "more"]
path = "s3a://bucket/two"
"""


def test_the_first_stage_that_archives_a_topic_is_its_archive(tmp_path: Path) -> None:
    pipeline = parse(PIPELINE, tmp_path / "pipeline.toml", {})
    first = ArchiveStage("first", str(tmp_path / "one"))
    assert archives_of(pipeline.declared, pipeline.context) == {
        "raw": first,
        "other": first,
        "more": ArchiveStage("second", "s3a://bucket/two"),
    }


def test_a_missing_file_of_logic_is_named(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"t\.py cannot be read"):
        read_logic(tmp_path, SETTINGS)
    (tmp_path / "t.py").write_text("x = 1")
    assert read_logic(tmp_path, SETTINGS) == "t.py:clean x = 1"


def test_topics_of_a_replay_are_paired_with_those_in_use() -> None:
    present = {"raw", "orders", "norway", "dead", "new", "new-norway", "new-dead", "new-other"}
    assert topic_pairs(present, "orders", "new") == [
        ("orders", "new"),
        ("dead", "new-dead"),
        ("norway", "new-norway"),
    ]
    assert topic_pairs({"new"}, "orders", "new") == []


def test_a_comparison_is_described_in_lines() -> None:
    examples = (
        Difference("added", ("raw", 0, 7), b"k", None, b"new"),
        Difference("removed", None, None, b"\xff", None),
        Difference("changed", ("raw", 1, 8), b"k", None, b"x" * 200),
    )
    assert list(describe(Comparison("orders", "new", 1000, 1, 1, 1, examples))) == [
        "new against orders: 1,000 equal, 1 changed, 1 added, 1 removed",
        "  added raw-0@7 key k",
        "    new: new",
        "  removed key null",
        "    old: \\xff",
        "  changed raw-1@8 key k",
        "    old: null",
        "    new: " + "x" * 100 + "...",
    ]
