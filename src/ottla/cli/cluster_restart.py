"""`ottla cluster restart`: one node after the other, of `ottla cluster up` or by a command for each node."""

import shlex
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.cluster_state import read_state, request_restart
from ottla.cli.options import AsJson
from ottla.cli.output import CommandError, print_json

if TYPE_CHECKING:
    from ottla.admin.rolling_restart import RestartNode, RollingRestart

# `ottla cluster up` kills a node that has not stopped by then.
RESTART_GRACE_S = 90.0
_STARTED_S = RESTART_GRACE_S + 30.0
_POLL_S = 0.1


def restart(
    rolling: Annotated[
        bool, typer.Option("--rolling", help="One node after the other. Required: there is no other way.")
    ] = False,
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="The folder of a running `ottla cluster up`.")
    ] = None,
    bootstrap: Annotated[
        str | None,
        typer.Option(
            "--bootstrap",
            "-b",
            metavar="HOST:PORT",
            envvar="OTTLA_BOOTSTRAP",
            help="With --command: brokers.",
        ),
    ] = None,
    command: Annotated[
        str | None,
        typer.Option(
            "--command",
            metavar="COMMAND",
            help="Restarts a node, or without {id} all of a host; {id} and {host} are replaced. It may return before "
            "the old process has ended.",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also if partitions would be below min.insync.replicas.")
    ] = False,
    timeout_s: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=1, help="How long to wait for one node.")
    ] = 300.0,
    as_json: AsJson = False,
) -> None:
    """Restart all nodes one after the other, the active controller last, and wait for in-sync replicas between them."""
    if not rolling:
        raise typer.BadParameter(
            "set it. To restart all nodes at once, stop `ottla cluster up` and start it again",
            param_hint="--rolling",
        )
    by_host = False
    if command is not None and data is None:
        restart_node, by_host = _by_command(command), "{id}" not in command
        failure: Callable[[RestartNode], str | None] = lambda node: None  # noqa: E731
    elif data is not None and command is None:
        bootstrap, restart_node, failure = read_state(data).bootstrap, _by_up(data), _failure_in(data)
    else:
        raise typer.BadParameter(
            "set either --data, or --command for nodes that `ottla cluster up` has not started",
            param_hint="--data",
        )
    if bootstrap is None:
        raise typer.BadParameter("set the addresses of brokers", param_hint="--bootstrap")
    from ottla.admin.rolling_restart import RollingRestart

    roll = RollingRestart(bootstrap, restart_node, failure=failure, by_host=by_host, timeout_s=timeout_s)
    _run(roll, force=force, as_json=as_json)


def _run(roll: "RollingRestart", *, force: bool, as_json: bool) -> None:
    nodes = roll.prepare(force=force)

    def on_restarted(node: "RestartNode", seconds: float) -> None:
        if as_json:
            for node_id in node.ids:
                print_json({"node": node_id, "restarted": True, "seconds": round(seconds, 3)})
        else:
            verb = "were" if node.others else "was"
            print(f"{node} {verb} restarted, and all replicas are in sync after {seconds:.1f} s", flush=True)

    roll.restart_one_after_the_other(nodes, on_restarted)


def _by_up(data: Path) -> "Callable[[RestartNode], None]":
    """Asks `ottla cluster up`, and returns when it has started a new process."""

    def restart_node(node: "RestartNode") -> None:
        before = read_state(data).node(node.id)
        if before is None:
            raise CommandError(
                f"node {node.id} belongs to the cluster, but not to {data}: restart such nodes with --command"
            )
        request_restart(data, node.id)
        deadline_s = time.monotonic() + _STARTED_S
        while (now := read_state(data).node(node.id)) is not None and now.pid == before.pid:
            if time.monotonic() > deadline_s:
                raise CommandError(
                    f"`ottla cluster up` has not restarted node {node.id} within {_STARTED_S:.0f} s. See {before.log}"
                )
            time.sleep(_POLL_S)

    return restart_node


def _failure_in(data: Path) -> "Callable[[RestartNode], str | None]":
    def failure(node: "RestartNode") -> str | None:
        now = read_state(data).node(node.id)
        if now is None or now.exit_code is None:
            return None
        return f"its process ended with exit code {now.exit_code}. See {now.log}"

    return failure


def _by_command(template: str) -> "Callable[[RestartNode], None]":
    try:
        parts = shlex.split(template)
    except ValueError as error:
        raise typer.BadParameter(f"{template}: {error}", param_hint="--command") from None
    if not any("{id}" in part or "{host}" in part for part in parts):
        raise typer.BadParameter(
            f"{template}: it needs {{id}} or {{host}}, e.g. 'ssh {{host}} systemctl restart ottla'",
            param_hint="--command",
        )

    def restart_node(node: "RestartNode") -> None:
        arguments = [part.replace("{id}", str(node.id)).replace("{host}", node.host or "") for part in parts]
        if node.host is None and "{host}" in template:
            raise CommandError(f"node {node.id} was not restarted: the cluster does not know its host")
        try:
            done = subprocess.run(arguments, stdin=subprocess.DEVNULL, check=False)
        except OSError as error:
            raise CommandError(
                f"node {node.id} was not restarted: {arguments[0]}: {error.strerror}"
            ) from None
        if done.returncode != 0:
            raise CommandError(
                f"node {node.id} was not restarted: `{shlex.join(arguments)}` ended with exit code {done.returncode}. "
                "The restart stops here"
            )

    return restart_node
