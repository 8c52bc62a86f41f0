"""`ottla format`: prepares the directories of a node for its cluster."""

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli.options import AsJson, config_refused, parse_pairs
from ottla.cli.output import CommandError, print_json

if TYPE_CHECKING:
    from ottla.broker.formatter import FormattedDirectory, InitialControllers
    from ottla.model.config import BrokerConfig

# Kafka takes any text. Other characters would need escapes in meta.properties, and quotes in a shell.
_CLUSTER_ID = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]*")


def format_command(
    data: Annotated[
        str | None, typer.Option("--data", metavar="DIR", help="The folder for the data: log.dirs.")
    ] = None,
    config: Annotated[
        str | None, typer.Option("--config", metavar="FILE", help="The server.properties of the node.")
    ] = None,
    cluster_id: Annotated[
        str | None,
        typer.Option("--cluster-id", metavar="ID", help="The id of the cluster, the same for all its nodes."),
    ] = None,
    node_id: Annotated[
        int | None, typer.Option("--node-id", metavar="N", min=0, help="The id of the node: node.id.")
    ] = None,
    feature: Annotated[
        list[str] | None,
        typer.Option(
            "--feature", metavar="NAME=LEVEL", help="The first level of a feature; may be repeated."
        ),
    ] = None,
    standalone: Annotated[
        bool, typer.Option("--standalone", help="Make this controller the only voter of a new cluster.")
    ] = False,
    initial_controllers: Annotated[
        str | None,
        typer.Option(
            "--initial-controllers",
            metavar="LIST",
            help="The first voters of a new cluster: ID@HOST:PORT:DIRECTORY_ID,... the same on each of them.",
        ),
    ] = None,
    no_initial_controllers: Annotated[
        bool, typer.Option("--no-initial-controllers", help="The cluster has voters already, or others.")
    ] = False,
    ignore_formatted: Annotated[
        bool, typer.Option("--ignore-formatted", help="Skip directories that are formatted already.")
    ] = False,
    random_cluster_id: Annotated[
        bool, typer.Option("--random-cluster-id", help="Only print a new cluster id.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Format the directories of a node. Every node of a cluster needs it once, with the same cluster id."""
    if random_cluster_id:
        _print_cluster_id(as_json)
        return
    if data is None and config is None:
        raise typer.BadParameter("set --data DIR or --config FILE")
    if cluster_id is not None and not _CLUSTER_ID.fullmatch(cluster_id):
        raise typer.BadParameter(
            f"{cluster_id!r} is not a cluster id. Get one with: ottla format --random-cluster-id",
            param_hint="--cluster-id",
        )
    features = _features(feature or [])
    node = _load(data, config, node_id)
    initial = _initial(node, standalone, initial_controllers, no_initial_controllers)
    _print(_format(node, cluster_id, features, ignore_formatted, initial), features, as_json)


def _initial(
    config: "BrokerConfig", standalone: bool, initial_controllers: str | None, no_initial_controllers: bool
) -> "InitialControllers | None":
    """The voters to write: None if the config says who votes."""
    from ottla.broker.formatter import InitialControllers, parse_initial_controllers

    flags = (standalone, initial_controllers is not None, no_initial_controllers)
    is_controller = "controller" in config.get_list("process.roles")
    has_static_voters = bool(config.get_list("controller.quorum.voters"))
    if not any(flags):
        if is_controller and config.get_list("controller.quorum.bootstrap.servers") and not has_static_voters:
            raise typer.BadParameter(
                "the config of this controller does not say who votes. Set --standalone for the first controller of a "
                "new cluster, --initial-controllers for several, or --no-initial-controllers for one that is added "
                "later"
            )
        return None
    if sum(flags) > 1:
        raise typer.BadParameter(
            "set only one of --standalone, --initial-controllers and --no-initial-controllers"
        )
    if has_static_voters:
        raise typer.BadParameter(
            "controller.quorum.voters has the voters of the cluster, so no others can be set. Remove it, and set "
            "controller.quorum.bootstrap.servers"
        )
    if no_initial_controllers:
        if is_controller and not config.get_list("controller.quorum.bootstrap.servers"):
            raise typer.BadParameter(
                "a controller that is added later asks the others for the leader. Set "
                "controller.quorum.bootstrap.servers in its config"
            )
        return InitialControllers() if is_controller else None
    if not is_controller or not config.controller_listeners:
        raise typer.BadParameter(
            "only a controller with a controller listener can be one of the first voters"
        )
    if initial_controllers is None:
        return InitialControllers(is_standalone=True)
    try:
        found = parse_initial_controllers(initial_controllers)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--initial-controllers") from None
    if found.own_voter(config) is None:
        raise typer.BadParameter(
            f"the list does not have this node ({config.node_id}). Use --no-initial-controllers for a controller that "
            "is added later",
            param_hint="--initial-controllers",
        )
    return found


def _print_cluster_id(as_json: bool) -> None:
    from ottla.broker.formatter import new_cluster_id
    from ottla.env.real import real_env

    cluster_id = new_cluster_id(real_env())
    if as_json:
        print_json({"cluster_id": cluster_id})
    else:
        print(cluster_id)


def _features(pairs: list[str]) -> dict[str, int]:
    from ottla.broker.formatter import feature_levels

    chosen = parse_pairs("--feature", pairs)
    for name, level in chosen.items():
        if not level.isdecimal():
            raise typer.BadParameter(
                f"{name}={level}: a level is a number, e.g. transaction.version=2", param_hint="--feature"
            )
    try:
        return feature_levels({name: int(level) for name, level in chosen.items()})
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--feature") from None


def _load(data: str | None, config: str | None, node_id: int | None) -> "BrokerConfig":
    """The options mean what they mean for `ottla serve`."""
    from ottla.cli.serve import broker_config, parser
    from ottla.model.config import ConfigError

    named = {"--data": data, "--config": config, "--node-id": node_id}
    given = [part for name, value in named.items() if value is not None for part in (name, str(value))]
    try:
        return broker_config(parser().parse_args(given))
    except ConfigError as error:
        raise config_refused(error.errors) from None


def _format(
    config: "BrokerConfig",
    cluster_id: str | None,
    features: dict[str, int],
    ignore_formatted: bool,
    initial: "InitialControllers | None",
) -> list["FormattedDirectory"]:
    from ottla.broker.formatter import format_directories
    from ottla.env.real import real_env
    from ottla.storage.meta_properties import UnusableDirectoryError

    try:
        return format_directories(
            real_env(),
            config,
            cluster_id=cluster_id,
            features=features,
            ignore_formatted=ignore_formatted,
            initial=initial,
        )
    except UnusableDirectoryError as error:
        raise CommandError(f"nothing was formatted: {error}") from None
    except OSError as error:
        raise CommandError(
            f"{error.filename or 'a directory'} cannot be formatted: {error.strerror or error}. Check the path and its "
            "permissions, then use --ignore-formatted to format the rest"
        ) from None


def _print(directories: list["FormattedDirectory"], features: dict[str, int], as_json: bool) -> None:
    if as_json:
        print_json(*(_as_json(directory, features) for directory in directories))
        return
    for directory in directories:
        kind = "metadata directory" if directory.is_metadata_directory else "data directory"
        done = "Formatted" if directory.is_new else "Already formatted:"
        meta = directory.meta
        print(f"{done} {kind} {directory.path} for node {meta.node_id} of cluster {meta.cluster_id}")
    if any(directory.is_new for directory in directories):
        print("Features: " + ", ".join(f"{name}={level}" for name, level in sorted(features.items())))


def _as_json(directory: "FormattedDirectory", features: dict[str, int]) -> dict[str, Any]:
    from ottla.model.ids import uuid_to_string

    return {
        "directory": directory.path,
        "metadata_directory": directory.is_metadata_directory,
        "formatted": directory.is_new,
        "cluster_id": directory.meta.cluster_id,
        "node_id": directory.meta.node_id,
        "directory_id": uuid_to_string(directory.meta.directory_id),
        "features": features if directory.is_new else None,
    }
