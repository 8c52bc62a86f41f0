"""`ottla groups reset-offsets`: parses its options and prints the plan as a table, CSV or JSON."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, parse_option
from ottla.cli.output import CommandError, print_json, print_table

if TYPE_CHECKING:
    from ottla.admin.group_offsets import TopicScope
    from ottla.admin.reset_plan import PlannedReset, Target
    from ottla.model.ids import TopicPartition

_Group = Annotated[str, typer.Argument(metavar="GROUP", help="The group; it must not have members.")]
_Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", "-t", metavar="NAME[:PARTITIONS]", help="A topic, or some partitions of it."),
]
_AllTopics = Annotated[bool, typer.Option("--all-topics", help="All topics for which the group has offsets.")]
_ToEarliest = Annotated[bool, typer.Option("--to-earliest", help="To the first record.")]
_ToLatest = Annotated[bool, typer.Option("--to-latest", help="To the end.")]
_ToCurrent = Annotated[bool, typer.Option("--to-current", help="To the committed offset.")]
_ToOffset = Annotated[int | None, typer.Option("--to-offset", metavar="N", min=0, help="To this offset.")]
_ShiftBy = Annotated[
    int | None, typer.Option("--shift-by", metavar="N", help="N records forward; back if N is negative.")
]
_ToDatetime = Annotated[
    str | None,
    typer.Option("--to-datetime", metavar="TIME", help="To a time, e.g. 2026-01-31T12:00:00.000Z."),
]
_ByDuration = Annotated[
    str | None,
    typer.Option("--by-duration", metavar="DURATION", help="To the time this long ago, e.g. P7D or PT1H30M."),
]
_FromFile = Annotated[
    Path | None,
    typer.Option("--from-file", metavar="FILE", help="To the offsets in a CSV file: topic,partition,offset."),
]
_Execute = Annotated[
    bool, typer.Option("--execute", help="Commit the new offsets; without this, only show them.")
]
_Export = Annotated[bool, typer.Option("--export", help="Print the new offsets as CSV, for --from-file.")]


def reset_offsets(
    group: _Group,
    topic: _Topics = None,
    all_topics: _AllTopics = False,
    to_earliest: _ToEarliest = False,
    to_latest: _ToLatest = False,
    to_current: _ToCurrent = False,
    to_offset: _ToOffset = None,
    shift_by: _ShiftBy = None,
    to_datetime: _ToDatetime = None,
    by_duration: _ByDuration = None,
    from_file: _FromFile = None,
    execute: _Execute = False,
    export: _Export = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Move the committed offsets of a group that has no members. A dry run, unless --execute is given."""
    given = {
        "--to-earliest": to_earliest or None,
        "--to-latest": to_latest or None,
        "--to-current": to_current or None,
        "--to-offset": to_offset,
        "--shift-by": shift_by,
        "--to-datetime": to_datetime,
        "--by-duration": by_duration,
        "--from-file": from_file,
    }
    chosen = {option: value for option, value in given.items() if value is not None}
    if len(chosen) != 1:
        raise typer.BadParameter(f"set exactly one of {', '.join(given)}")
    if export and as_json:
        raise typer.BadParameter("--export and --json exclude each other")
    if (topic is not None) + all_topics + (from_file is not None) != 1:
        raise typer.BadParameter(
            "set the topics: --topic NAME (may be repeated), --all-topics, or --from-file, which lists its own"
        )
    scopes = parse_scopes(topic)
    ((option, value),) = chosen.items()
    _run(
        group,
        _target(group, option, value),
        scopes,
        bootstrap,
        execute=execute,
        export=export,
        as_json=as_json,
    )


def parse_scopes(topics: list[str] | None) -> "list[TopicScope]":
    """Parses the values of --topic NAME[:PARTITIONS]."""
    from ottla.admin.group_offsets import parse_scope

    return [parse_option("--topic", parse_scope, text) for text in topics or []]


def _target(group: str, option: str, value: object) -> "Target":
    from ottla.admin import reset_plan
    from ottla.admin.timestamps import parse_datetime_ms, parse_duration_ms

    match option, value:
        case "--to-earliest", _:
            return reset_plan.ToEarliest()
        case "--to-latest", _:
            return reset_plan.ToLatest()
        case "--to-current", _:
            return reset_plan.ToCurrent()
        case "--to-offset", int(offset):
            return reset_plan.ToOffset(offset)
        case "--shift-by", int(count):
            return reset_plan.ShiftBy(count)
        case "--to-datetime", str(text):
            return reset_plan.ToTime(parse_option(option, parse_datetime_ms, text))
        case "--by-duration", str(text):
            return reset_plan.ToTime(int(time.time() * 1000) - parse_option(option, parse_duration_ms, text))
        case _, Path() as file:
            return reset_plan.ToListedOffsets(_read(file, group))
    raise ValueError(f"{option} has no target for {value!r}")


def _read(file: Path, group: str) -> "dict[TopicPartition, int]":
    from ottla.admin.offsets_csv import read_offsets

    try:
        return read_offsets(file.read_text(), group)
    except OSError as error:
        raise CommandError(f"{file} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise CommandError(f"{file}: {error}") from None


def _run(
    group: str,
    target: "Target",
    scopes: "list[TopicScope]",
    bootstrap: str,
    *,
    execute: bool,
    export: bool,
    as_json: bool,
) -> None:
    from ottla.admin.cluster import Cluster
    from ottla.admin.offsets_csv import write_offsets
    from ottla.admin.reset_offsets import execute_reset, plan_group_reset
    from ottla.admin.reset_plan import ToTime
    from ottla.admin.timestamps import format_time

    cluster = Cluster(bootstrap)
    plan = plan_group_reset(cluster, group, target, scopes)
    for line in plan:
        if line.note:
            print(f"{line.topic_partition}: {line.note}", file=sys.stderr)
    if execute:
        execute_reset(cluster, group, plan)
    if as_json:
        print_json(*({"group": group} | line._asdict() | {"executed": execute} for line in plan))
        return
    if export:
        sys.stdout.write(write_offsets(plan))
    else:
        _print_plan(plan)
    if isinstance(target, ToTime):
        print(f"These are the offsets at {format_time(target.time_ms)}.", file=sys.stderr)
    if not execute:
        print(f"Nothing was changed for group {group}; --execute commits the new offsets.", file=sys.stderr)


def _print_plan(plan: "list[PlannedReset]") -> None:
    rows = [
        (line.topic, line.partition, "-" if line.committed is None else line.committed, line.new_offset)
        for line in plan
    ]
    print_table(["TOPIC", ">PARTITION", ">COMMITTED", ">NEW OFFSET"], rows)
