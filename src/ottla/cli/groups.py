"""`ottla groups`: list, describe, members, offsets, reset-offsets, delete."""

import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ottla.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, check_choices
from ottla.cli.output import print_error, print_json, print_table
from ottla.cli.reset_offsets import parse_scopes, reset_offsets

if TYPE_CHECKING:
    from ottla.admin.cluster import Cluster
    from ottla.admin.group_offsets import TopicScope
    from ottla.admin.groups import GroupDescription, MemberDescription, PartitionLag
    from ottla.admin.offset_delete import DeletedOffset
    from ottla.model.ids import TopicPartition

app = typer.Typer(
    help="Consumer groups: list, describe, show members and lag, reset offsets, delete.", no_args_is_help=True
)
app.command("reset-offsets")(reset_offsets)

_Names = Annotated[list[str], typer.Argument(metavar="GROUP...", help="The groups.")]
_OFFSET_COLUMNS = ["TOPIC", ">PARTITION", ">COMMITTED", ">LOG END", ">LAG", "OWNER", "CLIENT ID", "HOST"]


@app.command("list")
def list_command(
    state: Annotated[
        list[str] | None, typer.Option("--state", metavar="STATE", help="Only groups in this state.")
    ] = None,
    type: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="TYPE", help="Only groups of this type: classic or consumer."),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """List the groups with their type, state and number of members."""
    from ottla.admin.cluster import Cluster
    from ottla.admin.groups import DEAD, STATES, TYPES, list_groups

    states = check_choices("--state", state, [name for name in STATES.values() if name != DEAD])
    types = check_choices("--type", type, TYPES.values())
    lines = list_groups(Cluster(bootstrap), states=states, types=types)
    if as_json:
        print_json(*(line._asdict() for line in lines))
    elif lines:
        counted = ("?" if line.members is None else line.members for line in lines)
        rows = [(*line[:3], count) for line, count in zip(lines, counted, strict=True)]
        print_table(["GROUP", "TYPE", "STATE", ">MEMBERS"], rows)
    else:
        print("No groups." if not state and not type else "No such groups.", file=sys.stderr)


@app.command()
def describe(groups: _Names, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: AsJson = False) -> None:
    """Show state, coordinator, assignor and members, and each partition with its lag and its owner."""
    from ottla.admin.cluster import Cluster
    from ottla.admin.groups import describe_groups, group_lag

    cluster = Cluster(bootstrap)
    for number, group in enumerate(describe_groups(cluster, groups)):
        lines = group_lag(cluster, group)
        if as_json:
            members = [_member_json(member) for member in group.members]
            partitions = [line._asdict() for line in lines]
            coordinator = group.coordinator._asdict()
            print_json(
                group._asdict() | {"coordinator": coordinator, "members": members, "partitions": partitions}
            )
        else:
            print("\n" if number else "", end="")
            _print_group(group, lines)


def _member_json(member: "MemberDescription") -> dict[str, Any]:
    target = None if member.target is None else [partition._asdict() for partition in member.target]
    assignment = [partition._asdict() for partition in member.assignment]
    return member._asdict() | {"assignment": assignment, "target": target}


def _print_group(group: "GroupDescription", lines: list["PartitionLag"]) -> None:
    print(f"{group.group}  ({group.type}, {group.state}, {_count(len(group.members), 'member')})")
    print(f"coordinator {group.coordinator}" + (f", assignor {group.assignor}" if group.assignor else ""))
    if lines:
        lag = sum(line.lag for line in lines if line.lag is not None)
        print(f"lag {lag} in {_count(len(lines), 'partition')}\n")
        print_table(_OFFSET_COLUMNS, [_cells(line) for line in lines])


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _cells(line: Iterable[object]) -> list[object]:
    """None is shown as a dash, as in Kafka's tool."""
    return ["-" if cell is None else cell for cell in line]


@app.command()
def members(
    groups: _Names,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose", "-v", help="Also the assigned partitions, and those of the target assignment."
        ),
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show the members of groups."""
    from ottla.admin.cluster import Cluster
    from ottla.admin.groups import describe_groups

    described = describe_groups(Cluster(bootstrap), groups)
    if as_json:
        print_json(*({"group": g.group} | _member_json(member) for g in described for member in g.members))
        return
    for group in described:
        if not group.members:
            print(f"Group {group.group} has no members", file=sys.stderr)
    if any(group.members for group in described):
        columns = ["GROUP", "MEMBER", "INSTANCE", "CLIENT ID", "HOST", ">PARTITIONS"]
        rows = [_member_cells(g.group, member, verbose) for g in described for member in g.members]
        print_table([*columns, "ASSIGNMENT", "TARGET"] if verbose else columns, rows)


def _member_cells(group: str, member: "MemberDescription", verbose: bool) -> list[object]:
    cells = [
        group,
        member.member_id,
        member.instance_id,
        member.client_id,
        member.host,
        len(member.assignment),
    ]
    if verbose:
        cells += [_by_topic(member.assignment), None if member.target is None else _by_topic(member.target)]
    return _cells(cells)


def _by_topic(partitions: list["TopicPartition"]) -> str:
    """orders:0,1 payments:3, as --topic takes them."""
    numbers: dict[str, list[str]] = {}
    for topic, number in partitions:
        numbers.setdefault(topic, []).append(str(number))
    return " ".join(f"{topic}:{','.join(of_topic)}" for topic, of_topic in numbers.items())


@app.command()
def offsets(groups: _Names, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: AsJson = False) -> None:
    """Show the committed offsets and the lag of groups, with or without members."""
    from ottla.admin.cluster import Cluster
    from ottla.admin.groups import describe_groups, group_lag

    cluster = Cluster(bootstrap)
    described = describe_groups(cluster, groups)
    lines = [(group.group, line) for group in described for line in group_lag(cluster, group)]
    if as_json:
        print_json(*({"group": group} | line._asdict() for group, line in lines))
    elif lines:
        print_table(["GROUP", *_OFFSET_COLUMNS], [_cells((group, *line)) for group, line in lines])
    else:
        print("No committed offsets.", file=sys.stderr)


class _Deletion(NamedTuple):
    """The result for a group or for one of its offsets; `fields` identify it in JSON."""

    what: str
    fields: Mapping[str, object]
    error: str | None


@app.command()
def delete(
    groups: _Names,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="NAME[:PARTITIONS]",
            help="Delete only the committed offsets of this topic.",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Delete groups that have no members, or only their committed offsets for some topics."""
    from ottla.admin.cluster import Cluster

    scopes = parse_scopes(topic)
    cluster = Cluster(bootstrap)
    if not yes and sys.stdin.isatty():
        what = f"offsets of {', '.join(topic)} in" if topic else ""
        typer.confirm(" ".join(f"Delete {what} {', '.join(groups)}?".split()), abort=True)
    results = [result for group in groups for result in _delete(cluster, group, scopes)]
    for what, fields, error in results:
        if as_json:
            print_json({**fields, "deleted": error is None, "error": error})
        elif error is None:
            print(f"Deleted {what}")
        else:
            print_error(error)
    if any(result.error for result in results):
        raise typer.Exit(1)


def _delete(cluster: "Cluster", group: str, scopes: list["TopicScope"]) -> list[_Deletion]:
    """An error for one group does not stop the deletion of the others."""
    from ottla.admin.cluster import ClusterError, UnreachableError
    from ottla.admin.groups import delete_group
    from ottla.admin.offset_delete import delete_offsets

    what, fields = f"group {group}", {"group": group}
    try:
        if scopes:
            return [_offset_deletion(group, line) for line in delete_offsets(cluster, group, scopes)]
        delete_group(cluster, group)
    except UnreachableError:
        raise
    except ClusterError as error:
        return [_Deletion(what, fields, str(error))]
    return [_Deletion(what, fields, None)]


def _offset_deletion(group: str, line: "DeletedOffset") -> _Deletion:
    what = f"the offset of group {group} for {line.topic}-{line.partition}"
    fields = {"group": group, "topic": line.topic, "partition": line.partition}
    return _Deletion(what, fields, line.error and f"Not deleted: {what}: {line.error}")
