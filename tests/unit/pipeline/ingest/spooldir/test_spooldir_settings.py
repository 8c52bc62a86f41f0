"""The settings of a spool directory: as a table, as options, and contradictions in them."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.ingest.spooldir.checks import check_folders
from ottla.pipeline.ingest.spooldir.record_format import RecordFormat
from ottla.pipeline.ingest.spooldir.scan import find_files, is_settled, is_wanted
from ottla.pipeline.ingest.spooldir.settings import SpoolDirSettings, check_settings, from_options, to_options
from ottla.pipeline.ingest.spooldir.source import settings_of
from ottla.pipeline.ingest.spooldir.stage import SpoolDirSource
from ottla.pipeline.stage import ClusterSettings, Context

PLAIN = SpoolDirSettings("spool", "raw")


def test_options_say_the_same_as_the_settings() -> None:
    settings = replace(
        PLAIN, include=("*.log", "*.csv"), recursive=True, settle_s=0.5, format="delimiter", delimiter="\0;"
    )
    assert from_options(to_options(settings)) == settings


def test_an_option_may_be_one_pattern_and_the_folder_a_path() -> None:
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
        ({"format": "delimiter", "delimiter": "hex:0g"}, "is not hexadecimal"),
        ({"format": "file", "carriage_return": "cut"}, 'Set format = "lines"'),
        ({"after": "move"}, "there is no `done_folder`"),
        ({"done_suffix": ""}, "`done_suffix` is empty"),
        ({"split_bytes": 0}, "`split_bytes` is 0"),
    ],
)
def test_settings_that_contradict_each_other_are_an_error(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(PipelineError) as raised:
        check_settings(replace(PLAIN, **changes))
    assert sentence in str(raised.value)


def test_the_format_decides_the_delimiter() -> None:
    assert PLAIN.record_format() == RecordFormat(b"\n")
    assert replace(PLAIN, carriage_return="cut", key="file").record_format() == RecordFormat(
        b"\n", True, True
    )
    assert replace(PLAIN, format="file").record_format() == RecordFormat(b"")
    assert replace(PLAIN, format="delimiter", delimiter="ä;").record_format() == RecordFormat("ä;".encode())
    assert replace(PLAIN, format="delimiter", delimiter="hex:1eFF").record_format() == RecordFormat(
        b"\x1e\xff"
    )


def test_temporary_hidden_and_done_files_are_not_wanted() -> None:
    names = ["a.log", ".a.log.swp", "a.tmp", "a.part", "a.log.done", "b.csv"]
    assert [name for name in names if is_wanted(name, PLAIN)] == ["a.log", "b.csv"]
    assert [name for name in names if is_wanted(name, replace(PLAIN, include=("*.csv",), ignore=()))] == [
        "b.csv"
    ]


def test_a_file_is_settled_when_it_did_not_change_for_long_enough() -> None:
    assert not is_settled(ctime=100.0, now=100.9, settle_s=1.0)
    assert is_settled(ctime=100.0, now=101.0, settle_s=1.0)


def test_broken_links_and_links_to_folders_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "a").write_bytes(b"")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "broken").symlink_to(tmp_path / "nothing")
    found = find_files(replace(PLAIN, folder=str(tmp_path), recursive=True))
    assert [file.name for file in found] == ["inner/a"]


def test_a_folder_that_is_missing_or_cannot_be_written_to_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = replace(PLAIN, folder=str(tmp_path / "spool"), log=str(tmp_path / "checkpoint" / "taken"))
    assert [finding.what for finding in check_folders(settings, "")] == [
        f"There is no folder {tmp_path}/spool."
    ]
    (tmp_path / "spool").mkdir()
    assert list(check_folders(settings, "")) == []
    monkeypatch.setattr(os, "access", lambda path, mode: mode & os.W_OK == 0)
    assert [finding.what for finding in check_folders(settings, "")] == [
        f"Files in the folder {tmp_path}/spool cannot be renamed, moved or deleted: it cannot be written to.",
        f"The log of taken files cannot be created in {tmp_path}/checkpoint/taken.",
    ]
    kept = replace(settings, after="keep", log=str(tmp_path))
    assert [finding.remedy for finding in check_folders(kept, "")] == [
        f"Allow this user to write to {tmp_path}."
    ]


def test_a_done_folder_on_another_file_system_is_reported(tmp_path: Path) -> None:
    settings = replace(PLAIN, folder=str(tmp_path), log=str(tmp_path), after="move", done_folder="/proc/self")
    (finding,) = check_folders(settings, "")
    assert "/proc/self" in finding.what
    assert list(check_folders(replace(settings, done_folder=str(tmp_path / "a" / "b")), "")) == []


def test_paths_are_relative_to_the_pipeline_and_the_log_is_inside_the_checkpoint(tmp_path: Path) -> None:
    context = Context("shop", ClusterSettings("127.0.0.1:1"), tmp_path, "checkpoints")
    stage = SpoolDirSource("files", replace(PLAIN, done_folder="done"), context)
    assert stage.settings.folder == str(tmp_path / "spool")
    assert stage.settings.done_folder == str(tmp_path / "done")
    assert stage.settings.log == str(tmp_path / "checkpoints" / "files" / "taken")


def test_with_checkpoints_that_are_not_local_the_log_must_be_set(tmp_path: Path) -> None:
    context = Context("shop", ClusterSettings("127.0.0.1:1"), tmp_path, "s3a://bucket/checkpoints")
    stage = SpoolDirSource("files", replace(PLAIN, folder="."), context)
    (finding,) = check_folders(stage.settings, "")
    assert finding.what == "s3a://bucket/checkpoints/files/taken is not a local path."
    assert "set `log`" in finding.remedy
    stage = SpoolDirSource("files", replace(PLAIN, folder=".", log="log"), context)
    assert list(check_folders(stage.settings, "")) == []
