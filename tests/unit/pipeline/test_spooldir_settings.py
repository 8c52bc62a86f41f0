"""The settings of a spool directory: as a table, as options, and what contradicts itself."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.ingest.spooldir.finding import find, is_settled, is_wanted
from ottla.pipeline.ingest.spooldir.problems import folder_problems
from ottla.pipeline.ingest.spooldir.settings import SpoolDirSettings, check, from_options, to_options
from ottla.pipeline.ingest.spooldir.source import settings_of
from ottla.pipeline.ingest.spooldir.splitting import Splitting
from ottla.pipeline.ingest.spooldir.stage import SpoolDirSource
from ottla.pipeline.stage import ClusterSettings, Context

PLAIN = SpoolDirSettings("spool", "raw")


def test_options_say_the_same_as_the_settings() -> None:
    settings = replace(
        PLAIN, include=("*.log", "*.csv"), recursive=True, settle_s=0.5, format="delimiter", delimiter="\0;"
    )
    assert from_options(to_options(settings)) == settings


def test_a_person_may_write_one_pattern_and_the_folder_as_a_path() -> None:
    settings = from_options({"path": "spool", "ignore": "*.bad", "settle_s": "2"})
    assert (settings.folder, settings.ignore, settings.settle_s) == ("spool", ("*.bad",), 2.0)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"folder": "a", "setle_s": "1"}, "does not know the setting `setle_s`. Did you mean `settle_s`?"),
        ({"folder": "a", "settle_s": "soon"}, "`settle_s` is 'soon'. It takes a number."),
        ({}, "has no `folder`"),
        ({"folder": "a"}, "has no `log`"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(PipelineError) as raised:
        settings_of(options)
    assert sentence in str(raised.value)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"format": "delimiter"}, "there is no `delimiter`"),
        ({"delimiter": ";"}, "A `delimiter` is given, but the format is 'lines'"),
        ({"format": "delimiter", "delimiter": "hex:0g"}, "not in hexadecimal digits"),
        ({"format": "file", "carriage_return": "cut"}, "It goes with format"),
        ({"after": "move"}, "there is no `done_folder`"),
        ({"done_suffix": ""}, "`done_suffix` is empty"),
        ({"split_bytes": 0}, "`split_bytes` is 0"),
    ],
)
def test_settings_that_contradict_each_other_are_an_error(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(PipelineError) as raised:
        check(replace(PLAIN, **changes))
    assert sentence in str(raised.value)


def test_the_format_decides_the_delimiter() -> None:
    assert PLAIN.splitting() == Splitting(b"\n")
    assert replace(PLAIN, carriage_return="cut", key="file").splitting() == Splitting(b"\n", True, True)
    assert replace(PLAIN, format="file").splitting() == Splitting(b"")
    assert replace(PLAIN, format="delimiter", delimiter="ä;").splitting() == Splitting("ä;".encode())
    assert replace(PLAIN, format="delimiter", delimiter="hex:1eFF").splitting() == Splitting(b"\x1e\xff")


def test_unfinished_hidden_and_done_files_are_not_wanted() -> None:
    names = ["a.log", ".a.log.swp", "a.tmp", "a.part", "a.log.done", "b.csv"]
    assert [name for name in names if is_wanted(name, PLAIN)] == ["a.log", "b.csv"]
    assert [name for name in names if is_wanted(name, replace(PLAIN, include=("*.csv",), ignore=()))] == [
        "b.csv"
    ]


def test_a_file_is_settled_when_it_was_quiet_long_enough() -> None:
    assert not is_settled(ctime=100.0, now=100.9, settle_s=1.0)
    assert is_settled(ctime=100.0, now=101.0, settle_s=1.0)


def test_links_to_nothing_and_to_folders_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "a").write_bytes(b"")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "broken").symlink_to(tmp_path / "nothing")
    found = find(replace(PLAIN, folder=str(tmp_path), recursive=True))
    assert [file.name for file in found] == ["inner/a"]


def test_a_folder_that_is_missing_or_cannot_be_written_to_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = replace(PLAIN, folder=str(tmp_path / "spool"), log=str(tmp_path / "checkpoint" / "taken"))
    assert [problem.what for problem in folder_problems(settings, "")] == [
        f"There is no folder {tmp_path}/spool."
    ]
    (tmp_path / "spool").mkdir()
    assert list(folder_problems(settings, "")) == []
    monkeypatch.setattr(os, "access", lambda path, mode: mode & os.W_OK == 0)
    assert [problem.what for problem in folder_problems(settings, "")] == [
        f"Files in the folder {tmp_path}/spool cannot be put away: it cannot be written to.",
        f"The log of taken files cannot be made in {tmp_path}/checkpoint/taken.",
    ]
    kept = replace(settings, after="keep", log=str(tmp_path))
    assert [problem.remedy for problem in folder_problems(kept, "")] == [
        f"Allow this user to write to {tmp_path}."
    ]


def test_a_done_folder_on_another_file_system_is_a_problem(tmp_path: Path) -> None:
    settings = replace(PLAIN, folder=str(tmp_path), log=str(tmp_path), after="move", done_folder="/proc/self")
    (problem,) = folder_problems(settings, "")
    assert "/proc/self" in problem.what
    assert list(folder_problems(replace(settings, done_folder=str(tmp_path / "a" / "b")), "")) == []


def test_paths_are_relative_to_the_pipeline_and_the_log_lies_beside_the_checkpoint(tmp_path: Path) -> None:
    context = Context("shop", ClusterSettings("127.0.0.1:1"), tmp_path, "checkpoints")
    stage = SpoolDirSource("files", replace(PLAIN, done_folder="done"), context)
    assert stage.settings.folder == str(tmp_path / "spool")
    assert stage.settings.done_folder == str(tmp_path / "done")
    assert stage.settings.log == str(tmp_path / "checkpoints" / "files" / "taken")


def test_checkpoints_that_are_not_local_need_a_log_of_its_own(tmp_path: Path) -> None:
    context = Context("shop", ClusterSettings("127.0.0.1:1"), tmp_path, "s3a://bucket/checkpoints")
    stage = SpoolDirSource("files", replace(PLAIN, folder="."), context)
    (problem,) = folder_problems(stage.settings, "")
    assert problem.what == "s3a://bucket/checkpoints/files/taken is not a local path."
    assert "set `log`" in problem.remedy
    stage = SpoolDirSource("files", replace(PLAIN, folder=".", log="log"), context)
    assert list(folder_problems(stage.settings, "")) == []
