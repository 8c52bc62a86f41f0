"""`ottla pipeline verify`, `merge` and `sql`: what one asks of the archives of a pipeline."""

import sys
import time
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli.options import AsJson
from ottla.cli.output import CommandError, print_json, print_table
from ottla.cli.pipeline_options import DEFAULT_FILE, File, Master

if TYPE_CHECKING:
    from ottla.pipeline.config import Pipeline

ROWS_SHOWN_MAX = 1000
ArchiveName = Annotated[
    str | None, typer.Argument(metavar="NAME", help="The archive, by the name of its sink; all without it.")
]


def verify(
    name: ArchiveName = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also read the topics, and compare every record byte for byte.")
    ] = False,
    master: Master = None,
    file: File = DEFAULT_FILE,
    as_json: AsJson = False,
) -> None:
    """Prove that every offset of the topics is archived once, or name the holes."""
    from ottla.pipeline.archive.verification import verify as verified
    from ottla.pipeline.config import load
    from ottla.pipeline.foreground import command_session

    pipeline = load(file)
    archives = archives_of(pipeline, name)
    is_whole = True
    with command_session(pipeline, master) as spark:
        for sink, path in archives.items():
            topics = pipeline.find(sink, "sinks").settings.topics
            report = verified(spark, pipeline.context.cluster, path, topics, deep=deep)
            is_whole = is_whole and report.is_whole
            if as_json:
                findings = [str(one) for one in (*report.damage, *report.findings)]
                print_json({"archive": sink, "whole": report.is_whole, "findings": findings})
            else:
                print("\n".join(f"{sink}: {sentence}" for sentence in report.sentences()))
    if not is_whole:
        raise typer.Exit(1)


def merge(name: ArchiveName = None, master: Master = None, file: File = DEFAULT_FILE) -> None:
    """Merge the small files of an archive's past hours into larger ones. Queries go on meanwhile."""
    from ottla.pipeline.archive.merge import merge as merged
    from ottla.pipeline.config import load
    from ottla.pipeline.foreground import command_session

    pipeline = load(file)
    archives = archives_of(pipeline, name)
    with command_session(pipeline, master) as spark:
        for sink, path in archives.items():
            done = merged(spark, path, time.time_ns() // 1_000_000)
            for one in done:
                print(
                    f"{sink}: {one.hour.folder}: {one.before} files are {one.after}, {one.records:,} records"
                )
            if not done:
                print(f"{sink}: no past hour has small files")


def sql(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="In Spark's SQL.")],
    master: Master = None,
    file: File = DEFAULT_FILE,
    as_json: AsJson = False,
) -> None:
    """Ask the archives: a table for each, by the name of its sink, and one for each archived topic."""
    from ottla.pipeline.archive.table import register_views
    from ottla.pipeline.config import load
    from ottla.pipeline.foreground import command_session

    pipeline = load(file)
    archives = archives_of(pipeline, None)
    with command_session(pipeline, master) as spark:
        register_views(spark, archives)
        answer = spark.sql(query)
        rows = answer.toLocalIterator()
        if as_json:
            for row in rows:
                print_json({column: shown(value) for column, value in row.asDict(recursive=True).items()})
            return
        first = [tuple(shown(value) for value in row) for row in islice(rows, ROWS_SHOWN_MAX)]
        print_table(answer.columns, first)
        if next(rows, None) is not None:
            print(f"Only the first {ROWS_SHOWN_MAX:,} rows; --json gives all.", file=sys.stderr)


def shown(value: Any) -> Any:
    """Bytes as text, with what is not UTF-8 escaped; times and decimals as they are written."""
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "backslashreplace")
    if isinstance(value, dict):
        return {name: shown(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [shown(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def archives_of(pipeline: "Pipeline", name: str | None) -> dict[str, str]:
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
