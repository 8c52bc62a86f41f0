"""Queries archives with DuckDB in this process: within a second or two, where Spark needs half a minute to start."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import dataset

from ottla.pipeline.archive.errors import explain_read_errors, read_error
from ottla.pipeline.archive.filesystem import open_filesystem, readable_files
from ottla.pipeline.archive.histories import histories_of
from ottla.pipeline.archive.layout import MANIFESTS
from ottla.pipeline.archive.manifest import Archived
from ottla.pipeline.archive.store import Manifests, archive_gone
from ottla.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_FOLDERS = pa.schema({"date": pa.date32(), "hour": pa.int32()})
_COLUMNS = pa.schema(
    {
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestampType": pa.int32(),
        "leaderEpoch": pa.int32(),
        "key": pa.binary(),
        "value": pa.binary(),
        "headers": pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()})),
        **{field.name: field.type for field in _FOLDERS},
    }
)
_ROWS_AT_A_TIME = 1000
_FILE = ".parquet"


def query(
    sql: str, archives: Mapping[str, str], options: Mapping[str, str]
) -> tuple[Sequence[str], Iterator[tuple[Any, ...]]]:
    """The names of the columns, and the rows. Each archive is a table with the name of its sink, as each topic is.

    `options` are Hadoop's settings, for S3.
    """
    try:
        import duckdb
    except ImportError:
        raise PipelineError(
            "DuckDB is not installed.", "Run `pip install 'ottla[sql]'`, or ask Spark: `--engine spark`."
        ) from None
    connection = duckdb.connect()
    names: set[str] = set()
    tables = [_Table(connection, path, options) for path in archives.values()]
    for sink, table in zip(archives, tables, strict=True):
        table.add_view(sink, table.archived.histories)
        names.add(sink)
    for table in tables:
        for topic in table.archived.topics:
            if topic not in names:
                table.add_view(topic, histories_of(table.archived, topic))
                names.add(topic)
    where = ", ".join(archives.values())
    with _explain_errors(duckdb.Error, where):
        result = connection.execute(sql)
    return [column[0] for column in result.description or ()], _rows(result, where)


def _rows(result: "DuckDBPyConnection", where: str) -> Iterator[tuple[Any, ...]]:
    import duckdb

    with _explain_errors(duckdb.Error, where):
        while rows := result.fetchmany(_ROWS_AT_A_TIME):
            yield from rows


@contextmanager
def _explain_errors(kind: type[Exception], where: str) -> Iterator[None]:
    try:
        yield
    except kind as error:
        text = str(error).strip()
        if _FILE in text:
            raise read_error(where, text) from None
        raise PipelineError(
            f"DuckDB rejects the query: {text.rstrip('.')}.",
            "Fix the query. If it is Spark's SQL, add `--engine spark`.",
        ) from None


class _Table:
    """The histories of an archive as tables of a connection."""

    def __init__(self, connection: "DuckDBPyConnection", path: str, options: Mapping[str, str]) -> None:
        self._connection = connection
        self._path = path
        self._system, self._root = open_filesystem(path.rstrip("/"), options)
        self.archived = self._load(options)
        # the table of each history
        self._tables = {history: self._register(history) for history in self.archived.histories}

    def _load(self, options: Mapping[str, str]) -> Archived:
        files = readable_files(self._path, options)
        with explain_read_errors(files.url()):
            if not files.names(MANIFESTS):
                raise archive_gone(files.url())
            return Manifests(files).load()

    def _register(self, history: str) -> str:
        paths = [f"{self._root}/{file.path}" for file in self.archived.files_of(history)]
        with explain_read_errors(self._path):
            rows = dataset.dataset(
                paths,
                schema=_COLUMNS,
                format="parquet",
                filesystem=self._system,
                partitioning=dataset.partitioning(_FOLDERS, flavor="hive"),
                partition_base_dir=f"{self._root}/{history}",
            )
        name = f"files of {history} in {self._path}"
        self._connection.register(name, rows)
        return name

    def add_view(self, name: str, histories: Sequence[str]) -> None:
        selects = [
            _select(self._tables[history], self.archived.topic_ids.get(history)) for history in histories
        ]
        if not selects:
            empty = "no files"
            self._connection.register(empty, _COLUMNS.empty_table())
            selects = [_select(empty, None)]
        self._connection.execute(f"create view {_name(name)} as {' union all by name '.join(selects)}")


def _select(table: str, topic_id: str | None) -> str:
    # A time with its zone, which is UTC, is of little use without DuckDB's extension for time zones.
    time = "make_timestamp(epoch_us(timestamp)) as timestamp"
    return f"select * replace ({time}), {_text(topic_id)} as topicId from {_name(table)}"


def _name(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _text(value: str | None) -> str:
    return "cast(null as varchar)" if value is None else "'" + value.replace("'", "''") + "'"
