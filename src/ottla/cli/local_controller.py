"""A controller on this host, as its config and its formatted directory describe it."""

import typer

from ottla.admin.voters import NewVoter
from ottla.cli.options import config_refused
from ottla.cli.output import CommandError


def read_controller(data: str | None, config: str | None) -> NewVoter:
    from ottla.broker.registration import advertised_end_points
    from ottla.cli.serve import broker_config, parser
    from ottla.env.real import real_env
    from ottla.model.config import ConfigError
    from ottla.model.ids import uuid_to_string
    from ottla.storage.meta_properties import UnusableDirectoryError, read_meta_properties

    if config is None:
        raise typer.BadParameter("set --config FILE, the server.properties of the controller")
    named = {"--data": data, "--config": config}
    given = [part for name, value in named.items() if value is not None for part in (name, value)]
    env = real_env()
    try:
        loaded = broker_config(parser().parse_args(given))
        meta = read_meta_properties(env.disk, loaded.metadata_log_dir)
    except ConfigError as error:
        raise config_refused(error.errors) from None
    except (UnusableDirectoryError, OSError) as error:
        raise CommandError(str(error)) from None
    listeners = loaded.controller_listeners
    if meta is None:
        raise CommandError(
            f"{loaded.metadata_log_dir} is not formatted. Run ottla format --no-initial-controllers, and start the node"
        )
    if "controller" not in loaded.get_list("process.roles") or not listeners:
        raise CommandError(
            f"node {loaded.node_id} is no controller. Set process.roles and a controller listener"
        )
    ports = [listener.port for listener in listeners]
    end_points = advertised_end_points(listeners, loaded.advertised_listeners, ports, env.network)
    return NewVoter(
        meta.node_id,
        uuid_to_string(meta.directory_id),
        [f"{found.name}://{found.host}:{found.port}" for found in end_points],
    )
