"""`ottla quorum`: describe, add, remove."""

from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from ottla.cli.output import print_json, print_table

if TYPE_CHECKING:
    from ottla.admin.quorum import QuorumDescription, QuorumReplica

_TIMEOUT_S_MAX = 14.0  # the request itself ends after 15 s

app = typer.Typer(help="The quorum of controllers, which keeps the metadata.", no_args_is_help=True)


@app.command()
def describe(
    replication: Annotated[
        bool, typer.Option("--replication", help="Show how far each voter and observer has come.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show leader, epoch, high watermark, voters and observers of the quorum of controllers."""
    from ottla.admin.brokers import cluster_id
    from ottla.admin.cluster import Cluster
    from ottla.admin.quorum import describe_quorum

    cluster = Cluster(bootstrap)
    described = describe_quorum(cluster)
    if replication:
        _print_replication([*described.voters, *described.observers], as_json)
    elif as_json:
        print_json(_as_json(cluster_id(cluster), described))
    else:
        _print_status(cluster_id(cluster), described)


@app.command()
def add(
    data: Annotated[
        str | None, typer.Option("--data", metavar="DIR", help="The metadata directory of the controller.")
    ] = None,
    config: Annotated[
        str | None, typer.Option("--config", metavar="FILE", help="The server.properties of the controller.")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=0.1, max=_TIMEOUT_S_MAX)
    ] = 10.0,
    as_json: AsJson = False,
) -> None:
    """Make a controller that runs on this host one of the voters, once it has caught up."""
    from ottla.admin.cluster import Cluster
    from ottla.admin.voters import add_voter
    from ottla.cli.local_controller import read_controller

    voter = read_controller(data, config)
    add_voter(Cluster(bootstrap), voter, timeout)
    result = {"node_id": voter.node_id, "directory_id": voter.directory_id, "end_points": voter.end_points}
    if as_json:
        print_json(result)
    else:
        print(f"Added voter {voter.node_id} with directory {voter.directory_id}")


@app.command()
def remove(
    node_id: Annotated[int, typer.Argument(metavar="NODE", min=0, help="The id of the voter.")],
    directory_id: Annotated[
        str | None,
        typer.Option(
            "--directory-id",
            metavar="ID",
            help="The directory of the voter; by default that which votes now.",
        ),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Make a voter an observer, or remove one that is dead."""
    from ottla.admin.cluster import Cluster
    from ottla.admin.voters import remove_voter

    removed = remove_voter(Cluster(bootstrap), node_id, directory_id)
    if as_json:
        print_json({"node_id": node_id, "directory_id": removed})
    else:
        print(f"Removed voter {node_id} with directory {removed}")


def _as_json(cluster_id: str, described: "QuorumDescription") -> dict[str, object]:
    return (
        {"cluster_id": cluster_id}
        | described._asdict()
        | {
            "max_follower_lag": described.max_follower_lag,
            "max_follower_lag_ms": described.max_follower_lag_ms,
            "voters": [voter._asdict() for voter in described.voters],
            "observers": [observer._asdict() for observer in described.observers],
        }
    )


def _print_status(cluster_id: str, described: "QuorumDescription") -> None:
    print(f"cluster {cluster_id}")
    leader = "no leader" if described.leader_id is None else f"leader {described.leader_id}"
    print(f"{leader}, epoch {described.leader_epoch}, high watermark {described.high_watermark}")
    lag, lag_ms = described.max_follower_lag, described.max_follower_lag_ms
    time = "" if lag_ms is None else f", {lag_ms} ms"
    print("follower lag unknown" if lag is None else f"largest lag of a voter: {lag} records{time}")
    print()
    print_table(
        [">NODE", "ROLE", "DIRECTORY ID", "END POINTS"],
        [
            _cells(
                [replica.node_id, replica.role, replica.directory_id, ",".join(replica.end_points) or None]
            )
            for replica in (*described.voters, *described.observers)
        ],
    )


def _print_replication(replicas: list["QuorumReplica"], as_json: bool) -> None:
    if as_json:
        print_json(*(replica._asdict() for replica in replicas))
        return
    columns = [">NODE", "ROLE", "DIRECTORY ID", ">LOG END", ">LAG", ">LAST FETCH", ">LAST CAUGHT UP"]
    rows = []
    for replica in replicas:
        cells = [replica.node_id, replica.role, replica.directory_id, replica.log_end_offset, replica.lag]
        times = (replica.since_last_fetch_ms, replica.since_caught_up_ms)
        rows.append(_cells([*cells, *(None if time is None else f"{time} ms ago" for time in times)]))
    print_table(columns, rows)


def _cells(values: list[object]) -> list[object]:
    return ["-" if value is None else value for value in values]
