"""The versions of a captured table."""

from pathlib import Path

import pytest

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.ingest.cdc.mysql.mariadb_gtid import MariaDbPosition
from ottla.pipeline.ingest.cdc.mysql.schema_history import ColumnSchema, SchemaHistory, TableVersion
from ottla.pipeline.ingest.cdc.state_files import open_state_file


def version(since: str, *names: str, ddl: str | None = None) -> TableVersion:
    columns = tuple(ColumnSchema(name, labels=("a", "b")) for name in names) if names else None
    return TableVersion("d/b", "t`.x", since, columns, key=names[:1], ddl=ddl)


def test_the_version_that_holds_is_the_last_one_before_the_position(tmp_path: Path) -> None:
    history = SchemaHistory(tmp_path)
    for known in (version("", "a"), version("0-1-5", "a", "b"), version("0-1-9,1-1-3", "a", "c")):
        history.record(known)
    for position, names in (("0-1-2", "a"), ("0-1-5", "ab"), ("0-1-9", "ab"), ("0-1-10,1-1-3", "ac")):
        found = history.at("d/b", "t`.x", MariaDbPosition.parse(position))
        assert found is not None
        assert found.columns is not None
        assert "".join(column.name for column in found.columns) == names


def test_after_a_statement_the_columns_are_unknown_until_an_event_describes_them(tmp_path: Path) -> None:
    history = SchemaHistory(tmp_path)
    history.record(version("0-1-1", "a"))
    history.record(version("0-1-5", ddl="ALTER TABLE t ADD b INT"))
    at = MariaDbPosition.parse("0-1-5")
    found = history.at("d/b", "t`.x", at)
    assert found is not None
    assert found.columns is None
    history.record(version("0-1-5", "a", "b"))
    assert history.at("d/b", "t`.x", at) == version("0-1-5", "a", "b")


def test_recording_again_changes_nothing(tmp_path: Path) -> None:
    history = SchemaHistory(tmp_path)
    for _ in range(2):
        history.record(version("0-1-1", "a"))
    assert list(history.versions("d/b", "t`.x")) == [version("0-1-1", "a")]
    assert len(list(tmp_path.rglob("*.json"))) == 1


def test_an_unknown_table_has_no_version(tmp_path: Path) -> None:
    assert SchemaHistory(tmp_path).at("d", "t", MariaDbPosition.parse("0-1-1")) is None


def test_a_folder_that_cannot_be_written_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PipelineError, match=r"cannot be written: Not a directory.*Free disk space"):
        SchemaHistory(tmp_path / "file").record(version("0-1-1", "a"))


def test_a_file_whose_write_failed_does_not_exist(tmp_path: Path) -> None:
    def write_half() -> None:
        with open_state_file(tmp_path / "whole") as file:
            file.write(b"half")
            raise KeyError

    with pytest.raises(KeyError):
        write_half()
    assert not (tmp_path / "whole").exists()
