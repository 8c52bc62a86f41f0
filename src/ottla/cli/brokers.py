"""`ottla brokers`: list, describe, unregister."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from ottla.cli.output import print_error, print_json, print_table

if TYPE_CHECKING:
    from ottla.admin.brokers import BrokerDetails, BrokerListing, PartitionCounts
    from ottla.admin.cluster import Cluster

app = typer.Typer(help="Brokers: list, describe, unregister.", no_args_is_help=True)

_RESTART = (
    "It serves no clients until it is restarted, which registers it again: stop it if it shall not come back"
)
_ACTIVE = (
    "The broker is active: its partitions lose this replica, and those without another one go offline.\n"
)

_Id = Annotated[int, typer.Argument(metavar="ID", min=0, help="The id of the broker.")]


@app.command("list")
def list_command(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: AsJson = False) -> None:
    """List the registered brokers with address, rack and state."""
    from ottla.admin.cluster import Cluster

    brokers = _list(Cluster(bootstrap))
    if as_json:
        print_json(*(broker._asdict() for broker in brokers))
        return
    if not brokers:
        print("No broker is registered.", file=sys.stderr)
        return
    print_table(
        [">ID", "ADDRESS", "RACK", "STATE", "CONTROLLER"],
        [
            (
                broker.id,
                f"{broker.host}:{broker.port}",
                broker.rack or "-",
                broker.state,
                broker.controller or "-",
            )
            for broker in brokers
        ],
    )


def _list(cluster: "Cluster") -> list["BrokerListing"]:
    """Brokers know each other also while the quorum has no leader: only the column of the controller is empty then."""
    from ottla.admin.brokers import list_brokers
    from ottla.admin.cluster import ClusterError
    from ottla.admin.quorum import describe_quorum

    try:
        quorum = describe_quorum(cluster)
    except ClusterError as error:
        print_error(f"The controllers are unknown. {error}")
        quorum = None
    return list_brokers(cluster, quorum)


@app.command()
def describe(broker_id: _Id, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: AsJson = False) -> None:
    """Show end points, rack, leaders, replicas and log directories of a broker."""
    from ottla.admin.brokers import FENCED, count_partitions, describe_broker, find_broker
    from ottla.admin.cluster import Cluster, ClusterError

    cluster = Cluster(bootstrap)
    broker = find_broker(_list(cluster), broker_id)
    counts = count_partitions(cluster, broker_id)
    details: BrokerDetails | None = None
    if broker.state != FENCED:  # a fenced broker is down, or not started completely
        try:
            details = describe_broker(cluster, broker)
        except ClusterError as error:
            print_error(str(error))
    if as_json:
        print_json(_as_json(broker, counts, details))
    else:
        _print_broker(broker, counts, details)


def _as_json(
    broker: "BrokerListing", counts: "PartitionCounts", details: "BrokerDetails | None"
) -> dict[str, object]:
    return (
        broker._asdict()
        | counts._asdict()
        | {
            "end_points": None if details is None else details.end_points,
            "directories": None if details is None else [line._asdict() for line in details.directories],
        }
    )


def _print_broker(
    broker: "BrokerListing", counts: "PartitionCounts", details: "BrokerDetails | None"
) -> None:
    controller = {"leader": ", leads the quorum", "voter": ", votes in the quorum"}.get(
        broker.controller or "", ""
    )
    print(f"broker {broker.node}  ({broker.state}{controller})")
    print(f"rack {broker.rack or '-'}")
    print(f"leads {counts.leaders} of its {counts.replicas} replicas, {counts.out_of_sync} are not in sync")
    if details is None:
        print("end points and log directories: unknown, because the broker does not respond")
        return
    print(f"end points {', '.join(details.end_points) or '-'}")
    print()
    columns = ["LOG DIRECTORY", "STATE", ">PARTITIONS", ">BYTES", ">USABLE BYTES", ">VOLUME BYTES"]
    print_table(
        columns,
        [
            (
                line.path,
                line.error or "online",
                line.partitions,
                line.size_bytes,
                "-" if line.usable_bytes is None else line.usable_bytes,
                "-" if line.total_bytes is None else line.total_bytes,
            )
            for line in details.directories
        ],
    )


@app.command()
def unregister(
    broker_id: _Id,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Remove the registration of a broker that will not come back. Stop it first."""
    from ottla.admin.brokers import ACTIVE, find_broker, unregister_broker
    from ottla.admin.cluster import Cluster

    cluster = Cluster(bootstrap)
    broker = find_broker(_list(cluster), broker_id)
    is_active = broker.state == ACTIVE
    if not yes and sys.stdin.isatty():
        typer.confirm(f"{_ACTIVE if is_active else ''}Unregister broker {broker.node}?", abort=True)
    unregister_broker(cluster, broker_id)
    if as_json:
        print_json({"broker": broker_id, "unregistered": True, "was_active": is_active})
    else:
        print(f"Unregistered broker {broker.node}")
    if is_active:
        print_error(f"broker {broker_id} was active. {_RESTART}")
