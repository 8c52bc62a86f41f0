"""`ottla configs`: describe, set, unset, reference."""

import sys
from typing import Annotated

import typer

from ottla.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, parse_pairs
from ottla.cli.output import CommandError, print_json, print_table
from ottla.cli.topics import source_name

app = typer.Typer(
    help="Configs of topics, brokers and groups: show, set, reset to defaults.", no_args_is_help=True
)

_Topic = Annotated[str | None, typer.Option("--topic", "-t", metavar="TOPIC", help="The topic.")]
_Broker = Annotated[str | None, typer.Option("--broker", metavar="ID", help="The broker.")]
_Group = Annotated[str | None, typer.Option("--group", metavar="GROUP", help="The group.")]


@app.command()
def describe(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Only these configs.")
    ] = None,
    topic: _Topic = None,
    broker: _Broker = None,
    group: _Group = None,
    show_all: Annotated[
        bool, typer.Option("--all", "-a", help="Also configs that have their default.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show configs with their values and sources; without --all or names, only those that are set."""
    from ottla.admin.cluster import Cluster
    from ottla.admin.configs import describe_configs

    kind, name = _resource(topic, broker, group)
    lines = describe_configs(Cluster(bootstrap), kind, name)
    unknown = set(names or ()) - {line.name for line in lines}
    if unknown:
        raise CommandError(
            f"A {kind} has no config {min(unknown)}. See: ottla configs describe --{kind} {name} --all"
        )
    chosen = [line for line in lines if (line.name in names if names else show_all or not line.is_default)]
    if as_json:
        print_json(*(line._asdict() for line in chosen))
    elif chosen:
        rows = [
            (
                line.name,
                "(hidden)" if line.sensitive else line.value,
                source_name(line.source),
                "yes" if line.read_only else "",
            )
            for line in chosen
        ]
        print_table(["CONFIG", "VALUE", "SET BY", "READ-ONLY"], rows)
    else:
        print(f"No config is set for {kind} {name}; --all shows the defaults", file=sys.stderr)


@app.command("set")
def set_command(
    configs: Annotated[list[str], typer.Argument(metavar="NAME=VALUE...", help="The configs to set.")],
    topic: _Topic = None,
    broker: _Broker = None,
    group: _Group = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Set configs; they take effect without a restart."""
    kind, name = _resource(topic, broker, group)
    values = parse_pairs("NAME=VALUE", configs)
    _alter(kind, name, bootstrap, as_json, set=values, unset=[])


@app.command()
def unset(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="The configs to reset to their defaults.")
    ],
    topic: _Topic = None,
    broker: _Broker = None,
    group: _Group = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Reset configs to their defaults."""
    kind, name = _resource(topic, broker, group)
    _alter(kind, name, bootstrap, as_json, set={}, unset=names)


@app.command()
def reference() -> None:
    """Print the reference of all configs as Markdown; needs no cluster."""
    from ottla.model.config.reference import reference_markdown

    sys.stdout.write(reference_markdown())


def _alter(
    kind: str, name: str, bootstrap: str, as_json: bool, *, set: dict[str, str], unset: list[str]
) -> None:
    from ottla.admin.cluster import Cluster
    from ottla.admin.configs import alter_configs

    alter_configs(Cluster(bootstrap), kind, name, set=set, unset=unset)
    if as_json:
        print_json({"type": kind, "name": name, "set": set, "unset": unset})
    else:
        print(f"Changed {kind} {name}: {', '.join([*set, *unset])}")


def _resource(topic: str | None, broker: str | None, group: str | None) -> tuple[str, str]:
    given = [(kind, name) for kind, name in (("topic", topic), ("broker", broker), ("group", group)) if name]
    if len(given) != 1:
        raise typer.BadParameter("set exactly one of --topic TOPIC, --broker ID and --group GROUP")
    return given[0]
