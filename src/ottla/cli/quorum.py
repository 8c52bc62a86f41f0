"""`ottla quorum`: describe."""

from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from ottla.cli.output import print_json, print_table

if TYPE_CHECKING:
    from ottla.admin.quorum import QuorumDescription, QuorumReplica

app = typer.Typer(help="The quorum of controllers, which keeps the metadata.", no_args_is_help=True)


@app.callback()
def quorum() -> None:
    """Makes `describe` a subcommand: Typer would run the only command of a group without its name."""


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
