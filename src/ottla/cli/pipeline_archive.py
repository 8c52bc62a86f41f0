"""`ottla pipeline verify`, `merge` and `sql`: commands on the archives of a pipeline."""

import sys
from collections.abc import Iterator, Sequence
from datetime import date
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli.options import AsJson
from ottla.cli.output import CommandError, print_json, print_table
from ottla.cli.pipeline_options import DEFAULT_FILE, File, Master

if TYPE_CHECKING:
    from ottla.pipeline.archive.coverage import Report
    from ottla.pipeline.config import Pipeline

_ROWS_SHOWN_MAX = 1000
_ArchiveName = Annotated[
    str | None, typer.Argument(metavar="NAME", help="The archive, by the name of its sink; default: all.")
]


def verify(
    name: _ArchiveName = None,
    ranges: Annotated[
        bool,
        typer.Option("--ranges", help="Only compare ranges of offsets, in seconds: without Spark and files."),
    ] = False,
    since: Annotated[
        str | None, typer.Option("--since", metavar="DATE", help="Only read files of this date or later.")
    ] = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also read the topics, and compare every record byte for byte.")
    ] = False,
    master: Master = None,
    file: File = DEFAULT_FILE,
    as_json: AsJson = False,
) -> None:
    """Check that every offset of the topics is archived exactly once; list the gaps."""
    from ottla.pipeline.config import load

    if ranges + deep + (since is not None) > 1:
        raise CommandError("Give only one of --ranges, --since and --deep")
    first = _parse_date(since)
    pipeline = load(file)
    is_whole = True
    reports = (
        _verify_ranges(pipeline, name, master)
        if ranges
        else _verify_files(pipeline, name, master, deep, first)
    )
    for sink, report in reports:
        is_whole = is_whole and report.is_whole
        if as_json:
            findings = [str(one) for one in (*report.damage, *report.findings)]
            print_json({"archive": sink, "whole": report.is_whole, "findings": findings})
        else:
            print("\n".join(f"{sink}: {sentence}" for sentence in report.sentences()))
    if not is_whole:
        raise typer.Exit(1)


def _parse_date(text: str | None) -> date | None:
    try:
        return None if text is None else date.fromisoformat(text)
    except ValueError:
        raise CommandError(f"--since is {text!r}. Give a date such as 2026-01-31") from None


def _verify_ranges(
    pipeline: "Pipeline", name: str | None, master: str | None
) -> Iterator[tuple[str, "Report"]]:
    """Without Spark, unless the archive is in a file system that Python cannot read, such as HDFS without libhdfs."""
    from ottla.pipeline.archive.coverage import can_read, verify_ranges
    from ottla.pipeline.foreground import command_session

    cluster, options = pipeline.context.cluster, _hadoop_options(pipeline)
    for sink, path in _find_archives(pipeline, name).items():
        topics = pipeline.find(sink, "sinks").settings.topics
        if can_read(path, options):
            yield sink, verify_ranges(cluster, path, topics, options)
        else:
            with command_session(pipeline, master) as spark:
                yield sink, verify_ranges(cluster, path, topics, spark=spark)


def _hadoop_options(pipeline: "Pipeline") -> dict[str, str]:
    """Hadoop's settings in the file, under their own names."""
    prefix = "spark.hadoop."
    return {
        key.removeprefix(prefix): str(value)
        for key, value in pipeline.spark.conf.items()
        if key.startswith(prefix)
    }


def _verify_files(
    pipeline: "Pipeline", name: str | None, master: str | None, deep: bool, since: date | None
) -> Iterator[tuple[str, "Report"]]:
    from ottla.pipeline.archive.verification import verify as verified
    from ottla.pipeline.foreground import command_session

    archives = _find_archives(pipeline, name)
    with command_session(pipeline, master) as spark:
        for sink, path in archives.items():
            topics = pipeline.find(sink, "sinks").settings.topics
            yield sink, verified(spark, pipeline.context.cluster, path, topics, deep=deep, since=since)


def merge(name: _ArchiveName = None, master: Master = None, file: File = DEFAULT_FILE) -> None:
    """Merge the small files of an archive's past hours into larger ones. Queries can run at the same time."""
    from ottla.pipeline.archive.merge import merge as merged
    from ottla.pipeline.config import load
    from ottla.pipeline.foreground import command_session

    pipeline = load(file)
    archives = _find_archives(pipeline, name)
    with command_session(pipeline, master) as spark:
        for sink, path in archives.items():
            done = merged(spark, path)
            for one in done:
                print(
                    f"{sink}: {one.hour.folder}: {one.before} files are {one.after}, {one.records:,} records"
                )
            if not done:
                print(f"{sink}: no past hour has small files")


class Engine(StrEnum):
    AUTO = "auto"
    SPARK = "spark"
    DUCKDB = "duckdb"


def sql(
    query: Annotated[
        str, typer.Argument(metavar="QUERY", help="A query in SQL, as the engine understands it.")
    ],
    engine: Annotated[
        Engine,
        typer.Option(
            "--engine", help="auto: duckdb, which answers within seconds; spark where duckdb cannot answer."
        ),
    ] = Engine.AUTO,
    master: Master = None,
    file: File = DEFAULT_FILE,
    as_json: AsJson = False,
) -> None:
    """Query the archives. Each archive is a table with the name of its sink; each archived topic is a table too."""
    from ottla.pipeline.config import load

    if engine == Engine.DUCKDB and master is not None:
        raise CommandError("--master is for Spark: leave it out, or give --engine spark")
    pipeline = load(file)
    archives = _find_archives(pipeline, None)
    if engine == Engine.AUTO:
        engine = _choose_engine(archives, _hadoop_options(pipeline), master)
    if engine == Engine.DUCKDB:
        from ottla.pipeline.archive.embedded import query as embedded_query

        _print_rows(*embedded_query(query, archives, _hadoop_options(pipeline)), as_json)
        return
    from ottla.pipeline.archive.table import register_views
    from ottla.pipeline.foreground import command_session

    with command_session(pipeline, master) as spark:
        register_views(spark, archives)
        result = spark.sql(query)
        _print_rows(result.columns, map(tuple, result.toLocalIterator()), as_json)


def _choose_engine(archives: dict[str, str], options: dict[str, str], master: str | None) -> Engine:
    """Says on stderr which engine answers, because the SQL of the two differs, and Spark needs a while to start."""
    from ottla.pipeline.archive.engine import why_not_duckdb

    reason = "--master is given" if master is not None else why_not_duckdb(archives.values(), options)
    if reason is None:
        print("DuckDB answers, in its SQL. For Spark's: --engine spark", file=sys.stderr)
        return Engine.DUCKDB
    print(f"Spark answers, in its SQL, after its start: {reason}.", file=sys.stderr)
    return Engine.SPARK


def _print_rows(columns: Sequence[str], rows: Iterator[tuple[Any, ...]], as_json: bool) -> None:
    if as_json:
        for row in rows:
            print_json({column: _format_value(value) for column, value in zip(columns, row, strict=True)})
        return
    first = [tuple(_format_value(value) for value in row) for row in islice(rows, _ROWS_SHOWN_MAX)]
    print_table(columns, first)
    if next(rows, None) is not None:
        print(f"Only the first {_ROWS_SHOWN_MAX:,} rows; --json gives all.", file=sys.stderr)


def _format_value(value: Any) -> Any:
    """Bytes as text, escaped where they are not UTF-8; times and decimals as text."""
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "backslashreplace")
    if hasattr(value, "asDict"):
        # a struct of Spark's, which is a tuple too
        value = value.asDict()
    if isinstance(value, dict):
        return {name: _format_value(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_format_value(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _find_archives(pipeline: "Pipeline", name: str | None) -> dict[str, str]:
    """The paths of the archives, by the names of their sinks."""
    if name is not None:
        pipeline.find(name, "sinks")
    found = {
        item.name: pipeline.context.path(item.settings.path)
        for item in pipeline.declared
        if item.group == "sinks" and item.kind == "archive" and name in (None, item.name)
    }
    if not found:
        raise CommandError(f'{pipeline.path} has no archive. Add a [sinks.NAME] with kind = "archive"')
    return found
