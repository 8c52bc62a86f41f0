"""`ottla reassign`: generate, execute, verify, cancel."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from ottla.cli.output import CommandError, print_error, print_json, print_table

if TYPE_CHECKING:
    from ottla.admin.reassignment_generator import BrokerLoad
    from ottla.admin.reassignment_plan import ClusterState, Plan
    from ottla.admin.reassignment_runs import Cancelled, Run

app = typer.Typer(
    help="Move partitions to other brokers, by plans in the format of Kafka's tool.", no_args_is_help=True
)

_PlanFile = Annotated[
    Path, typer.Argument(metavar="PLAN", help="A file with a plan, as `generate` prints it; - for stdin.")
]
_KeepThrottles = Annotated[
    bool, typer.Option("--keep-throttles", help="Do not remove the throttles of the topics and brokers.")
]
_NOT_COMPLETE = 1


@app.command()
def generate(
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", metavar="TOPIC", help="Only this topic; may be repeated."),
    ] = None,
    brokers: Annotated[
        str | None,
        typer.Option("--brokers", metavar="IDS", help="Only these brokers may have replicas, e.g. 1,2,3."),
    ] = None,
    drain: Annotated[
        list[int] | None,
        typer.Option("--drain", metavar="BROKER", help="Move all replicas away from it; may be repeated."),
    ] = None,
    add: Annotated[
        list[int] | None,
        typer.Option("--add", metavar="BROKER", help="Move replicas only to it; may be repeated."),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option("--replication-factor", "-r", metavar="N", min=1, help="The new number of replicas."),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Print a plan that balances replicas, leaders and disks over racks and brokers. Changes nothing."""
    from ottla.admin.cluster import Cluster
    from ottla.admin.reassignment_generator import Wish, generate_plan
    from ottla.admin.reassignment_plan import format_plan
    from ottla.admin.reassignments import read_state

    wish = Wish(topic or [], _ids("--brokers", brokers), drain or [], add or [], replication_factor)
    state = read_state(Cluster(bootstrap))
    plan = generate_plan(state, wish)
    if as_json:
        print_json(_as_json(state, plan))
        return
    _print_loads(state, plan)
    if plan:
        print(format_plan(plan))


def _ids(option: str, text: str | None) -> list[int]:
    items = [item.strip() for item in (text or "").split(",") if item.strip()]
    if not all(item.isdecimal() for item in items):
        raise typer.BadParameter(f"{text!r}: expected ids of brokers, separated by commas", param_hint=option)
    return list(map(int, items))


def _loads(state: "ClusterState", plan: "Plan") -> list[tuple["BrokerLoad", "BrokerLoad"]]:
    from ottla.admin.reassignment_generator import broker_loads

    return list(zip(broker_loads(state, {}), broker_loads(state, plan), strict=True))


def _as_json(state: "ClusterState", plan: "Plan") -> dict[str, object]:
    import json

    from ottla.admin.reassignment_generator import copied_bytes
    from ottla.admin.reassignment_plan import added_replicas, format_plan

    return {
        "partitions": len(plan),
        "moved_replicas": sum(map(len, added_replicas(plan, state).values())),
        "copied_bytes": copied_bytes(plan, state),
        "brokers": [
            {"broker": before.broker, "before": before._asdict(), "after": after._asdict()}
            for before, after in _loads(state, plan)
        ],
        "plan": json.loads(format_plan(plan)),
    }


def _print_loads(state: "ClusterState", plan: "Plan") -> None:
    """To stderr: stdout has the plan."""
    from ottla.admin.reassignment_generator import copied_bytes
    from ottla.admin.reassignment_plan import added_replicas

    def change(before: object, after: object) -> str:
        return str(before) if before == after else f"{before} -> {after}"

    print_table(
        [">BROKER", "RACK", ">REPLICAS", ">LEADERS", ">BYTES"],
        [
            (
                before.broker,
                before.rack or "-",
                change(before.replicas, after.replicas),
                change(before.leaders, after.leaders),
                change(before.size_bytes, after.size_bytes),
            )
            for before, after in _loads(state, plan)
        ],
        file=sys.stderr,
    )
    if not plan:
        print("Nothing to move.", file=sys.stderr)
        return
    moved = sum(map(len, added_replicas(plan, state).values()))
    print(
        f"The plan changes {len(plan)} partitions and copies {moved} replicas with {copied_bytes(plan, state)} "
        "bytes. Save it, and run: ottla reassign execute PLAN",
        file=sys.stderr,
    )


@app.command()
def execute(
    plan_file: _PlanFile,
    throttle: Annotated[
        int | None,
        typer.Option("--throttle", metavar="BYTES", min=1, help="Bytes a second that each broker may copy."),
    ] = None,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Start it, and do not wait for the end.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Also if a partition gets fewer replicas than min.insync.replicas."),
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Carry out a plan, and show its progress. Ctrl-C ends only the display: the partitions move on."""
    from ottla.admin.cluster import Cluster
    from ottla.admin.reassignment_runs import end_throttles, prepare, start
    from ottla.cli.reassign_progress import retry, unfinished, wait_until_complete

    plan = _read_plan(plan_file)
    cluster = Cluster(bootstrap)
    run = prepare(cluster, plan, force=force)
    _print_previous(run, as_json)
    start(cluster, run, throttle=throttle)
    if run.changes and not as_json:
        print(f"Started to reassign {len(run.changes)} partitions.", flush=True)
    left: dict[str, str] = {}
    if run.changes and not no_wait:
        wait_until_complete(cluster, run, as_json=as_json)
        left = {str(partition): state for partition, state in unfinished(cluster, run).items()}
    if throttle is not None and not no_wait:
        # Also without changes: the move may have ended after an earlier `execute` was interrupted.
        retry(lambda: end_throttles(cluster, plan))
    _print_end(run, left, not no_wait, as_json)
    if left:
        raise typer.Exit(_NOT_COMPLETE)


def _print_end(run: "Run", left: dict[str, str], has_waited: bool, as_json: bool) -> None:
    """`left` are the partitions that are not as in the plan, with their states."""
    if as_json:
        is_complete = not left and (has_waited or not run.changes)
        end: dict[str, object] = {"partitions": len(run.changes), "is_complete": is_complete}
        print_json(end | ({"not_complete": left} if left else {}))
    elif left:
        names = "".join(f"\n  {partition} ({state})" for partition, state in left.items())
        print_error(
            f"{len(left)} of {len(run.changes)} partitions do not move any more, but are not as in the plan. Somebody "
            f"may have cancelled their moves, or started others. See: ottla reassign verify PLAN{names}"
        )
    elif run.changes:
        print("Complete." if has_waited else "See how far it is with: ottla reassign verify PLAN")


def _print_previous(run: "Run", as_json: bool) -> None:
    """Before the start, and at once: the plan to go back is needed most if something fails from here on."""
    import json

    from ottla.admin.reassignment_plan import format_plan

    previous = format_plan(run.previous) if run.changes else ""
    if as_json and previous:
        print_json({"previous": json.loads(previous)})
    elif not as_json:
        print(
            f"To go back, execute this plan:\n{previous}"
            if previous
            else "All partitions are as in the plan: nothing to do.",
            flush=True,
        )


def _read_plan(path: Path) -> "Plan":
    from ottla.admin.reassignment_plan import PlanError, parse_plan

    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text()
        return parse_plan(text)
    except OSError as error:
        raise CommandError(f"The plan {path} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        reason = error if isinstance(error, PlanError) else "it is not UTF-8 text"
        raise CommandError(f"The plan {path} cannot be used: {reason}") from None


@app.command()
def verify(
    plan_file: _PlanFile,
    keep_throttles: _KeepThrottles = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show how far a plan is. If nothing of it moves any more, remove its throttles. Exit code 1: not complete."""
    from ottla.admin.cluster import Cluster
    from ottla.admin.reassignment_runs import COMPLETE, verify

    states, removed = verify(Cluster(bootstrap), _read_plan(plan_file), keep_throttles=keep_throttles)
    if as_json:
        lines = [
            {"topic": partition.topic, "partition": partition.partition, "state": state}
            for partition, state in states.items()
        ]
        print_json(*lines)
    else:
        print_table(["PARTITION", "STATE"], list(states.items()))
        print("The throttles were removed." if removed else "", end="\n" if removed else "")
    if any(state != COMPLETE for state in states.values()):
        raise typer.Exit(_NOT_COMPLETE)


@app.command("cancel")
def cancel_command(
    plan_file: _PlanFile,
    keep_throttles: _KeepThrottles = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Cancel the moves of a plan that are not complete: the partitions stay on the brokers of before."""
    from ottla.admin.cluster import Cluster
    from ottla.admin.reassignment_runs import cancel_plan

    plan = _read_plan(plan_file)
    cancelled = cancel_plan(Cluster(bootstrap), plan, keep_throttles=keep_throttles)
    if as_json:
        print_json(
            {
                "cancelled": list(map(str, cancelled.partitions)),
                "missing": list(map(str, cancelled.missing)),
                "throttles_removed": cancelled.throttles_removed,
            }
        )
    else:
        _print_cancelled(cancelled)
    if cancelled.error is not None:
        raise cancelled.error


def _print_cancelled(cancelled: "Cancelled") -> None:
    if not cancelled.partitions and cancelled.error is None:
        print("No partition of the plan is being moved.")
    for partition in cancelled.partitions:
        print(f"Cancelled the move of {partition}")
    for partition in cancelled.missing:
        print(f"{partition} does not exist.")
    if cancelled.throttles_removed:
        print("The throttles were removed.")
