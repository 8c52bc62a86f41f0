"""`ottla cluster`: up, restart."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.admin.signal_flag import SignalFlag
from ottla.cli.cluster_layout import (
    NODE_LOG,
    NODES_MAX,
    NodeLayout,
    check_voters,
    node_command,
    plan_nodes,
    properties_of,
    properties_text,
)
from ottla.cli.cluster_restart import RESTART_GRACE_S, restart
from ottla.cli.cluster_state import (
    ClusterState,
    NodeState,
    remove_state,
    take_restart_request,
    write_state,
)
from ottla.cli.options import AsJson, config_refused, parse_pairs
from ottla.cli.output import CommandError, print_error, print_json, print_table
from ottla.cli.serve import DEFAULT_LISTEN

if TYPE_CHECKING:
    from types import FrameType

    from ottla.cli.local_cluster import LocalCluster, Node
    from ottla.env import Env

_READY_S = 120.0
_SERVE_S = 120.0
_GRACE_S = 30.0
_POLL_S = 0.1
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_WILDCARDS = ("", "0.0.0.0", "::")

app = typer.Typer(help="A cluster of several nodes on this machine.", no_args_is_help=True)


app.command("restart")(restart)


@app.command()
def up(
    data: Annotated[Path, typer.Option("--data", metavar="DIR", help="The folder for all nodes.")],
    nodes: Annotated[
        int, typer.Option("--nodes", "-n", metavar="N", min=1, max=NODES_MAX, help="How many brokers.")
    ] = 3,
    controllers: Annotated[
        int,
        typer.Option(
            "--controllers",
            metavar="N",
            min=0,
            max=9,
            help="How many controllers of their own; 0: every broker is a controller too.",
        ),
    ] = 0,
    listen: Annotated[
        str,
        typer.Option(
            "--listen", metavar="HOST:PORT", help="The first broker; the others have the next ports. 0: any."
        ),
    ] = DEFAULT_LISTEN,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A config of every node.")
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show the logs of all nodes on stderr.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run a cluster on this machine, one process for each node. Ctrl-C or SIGTERM stops all of them."""
    from ottla.cli.local_cluster import LocalCluster, NodeSpec

    host, port = _parse_listen(listen)
    settings = parse_pairs("--set", set_ or [])
    layout = plan_nodes(_folder(data), nodes, controllers, host, port)
    cluster_id = _prepare(_folder(data), layout, settings)
    specs = [
        NodeSpec(
            node.node_id,
            node_command(node.properties_path),
            node.directory / NODE_LOG,
            has_controller=node.controller_address is not None,
        )
        for node in layout
    ]
    with _stop_signals() as (stop, kill):
        show = _show_line if verbose else _ignore_line
        local = LocalCluster(specs, stop, print_error, show)
        is_clean = _run(local, layout, cluster_id, (stop, kill), as_json)
    if not is_clean:
        raise typer.Exit(1)


def _parse_listen(listen: str) -> tuple[str, int]:
    host, separator, port = listen.rpartition(":")
    host = host.strip("[]")
    if not separator or not port.isdecimal() or int(port) > 65_535:
        raise typer.BadParameter(
            f"{listen}: expected HOST:PORT, e.g. {DEFAULT_LISTEN}", param_hint="--listen"
        )
    if host in _WILDCARDS:
        raise typer.BadParameter(
            f"{listen}: the nodes connect to each other at this address, so it needs a host, e.g. {DEFAULT_LISTEN}",
            param_hint="--listen",
        )
    return host, int(port)


def _folder(data: Path) -> Path:
    folder = data.absolute()
    if "," in str(folder):
        raise typer.BadParameter(f"{folder}: a comma separates folders in log.dirs", param_hint="--data")
    return folder


def _prepare(data: Path, layout: list[NodeLayout], settings: dict[str, str]) -> str:
    """Formats the directories that are new, and writes the server.properties. Returns the cluster id."""
    from ottla.broker.formatter import format_directories
    from ottla.env.real import real_env
    from ottla.model.config import BrokerConfig, ConfigError
    from ottla.storage.meta_properties import UnusableDirectoryError

    env = real_env()
    properties = {node.node_id: properties_of(node, layout, settings) for node in layout}
    try:
        check_voters(data, layout)
        configs = {node_id: BrokerConfig(found) for node_id, found in properties.items()}
        _check_not_running(env, data)
        cluster_id = _cluster_id(env, data)
        for node in layout:
            format_directories(env, configs[node.node_id], cluster_id=cluster_id, ignore_formatted=True)
            node.properties_path.write_text(properties_text(node, properties[node.node_id]), encoding="utf-8")
    except ConfigError as error:
        raise config_refused(error.errors) from None
    except UnusableDirectoryError as error:
        raise CommandError(f"the cluster is not started: {error}") from None
    except OSError as error:
        raise CommandError(f"the cluster is not started: {error}. Check the folder of --data") from None
    return cluster_id


def _check_not_running(env: "Env", data: Path) -> None:
    """Each node locks its directory. Without this check a running cluster would get other ports in its files."""
    from ottla.storage.log_dir import LOCK_FILE

    for path in sorted(data.glob(f"node-*/{LOCK_FILE}")):
        try:
            env.disk.lock(str(path)).release()
        except BlockingIOError:
            raise CommandError(
                f"the cluster in {data} is running: stop it, or choose another --data"
            ) from None


def _cluster_id(env: "Env", data: Path) -> str:
    """That of the nodes in the folder, or a new one."""
    from ottla.broker.formatter import new_cluster_id
    from ottla.storage.meta_properties import read_meta_properties

    found = [read_meta_properties(env.disk, str(path)) for path in data.glob("node-*")]
    cluster_ids = sorted({meta.cluster_id for meta in found if meta is not None})
    if len(cluster_ids) > 1:
        raise CommandError(
            f"the nodes in {data} belong to different clusters: {', '.join(cluster_ids)}. Move those of one cluster "
            "out of the folder, or choose another folder with --data"
        )
    return cluster_ids[0] if cluster_ids else new_cluster_id(env)


@contextmanager
def _stop_signals() -> Iterator[tuple[SignalFlag, SignalFlag]]:
    """The first signal asks to stop, the second to kill."""
    stop, kill = SignalFlag(), SignalFlag()

    def handle(number: int, frame: "FrameType | None") -> None:
        (kill if stop.is_set() else stop).set()

    # `nohup` makes a process ignore SIGHUP: it shall go on then.
    wanted = [number for number in _STOP_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handle) for number in wanted}
    try:
        yield stop, kill
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _show_line(node_id: int, line: str) -> None:
    print(f"node {node_id} | {line}", file=sys.stderr, flush=True)


def _ignore_line(node_id: int, line: str) -> None:
    pass


def _run(
    local: "LocalCluster",
    layout: list[NodeLayout],
    cluster_id: str,
    signals: tuple[SignalFlag, SignalFlag],
    as_json: bool,
) -> bool:
    """Returns whether it ended as the user asked, and every node stopped cleanly."""
    stop, kill = signals
    is_running = False
    for node in layout:
        take_restart_request(_data_of(layout), node.node_id)  # of an earlier run
    try:
        local.start()
        local.wait_until_ready(_READY_S)
        leader = _wait_until_it_serves(local, layout, stop)
        if not stop.is_set():
            _write_state(local, layout)  # whoever reads `ready` may ask for a restart
            _print_ready(local, layout, cluster_id, leader, as_json)
            is_running = True
            _watch(local, layout, as_json)
    finally:
        remove_state(_data_of(layout))
        was_asked = stop.is_set()
        stop.set()  # from now on a signal asks to kill
        if is_running and was_asked:
            print_error("stopping all nodes. Press Ctrl-C again to kill them")
        is_clean = local.stop(_GRACE_S, kill)
    if not was_asked:
        raise CommandError("no node is left")
    return is_clean


def _watch(local: "LocalCluster", layout: list[NodeLayout], as_json: bool) -> None:
    """Reports nodes that end, and restarts those for which `ottla cluster restart` asks."""

    def on_end(node: "Node") -> None:
        _write_state(local, layout)
        _report_end(node, layout, as_json)

    def on_restart(node: "Node") -> None:
        _write_state(local, layout)
        if as_json:
            print_json({"node": node.id, "pid": node.pid, "restarted": True})
        else:
            print(f"node {node.id} was restarted, and has pid {node.pid}", flush=True)

    def on_turn() -> None:
        for node in layout:
            if take_restart_request(_data_of(layout), node.node_id):
                local.restart(node.node_id, RESTART_GRACE_S)

    local.watch(on_end, on_restart, on_turn)


def _write_state(local: "LocalCluster", layout: list[NodeLayout]) -> None:
    logs = {node.node_id: str(node.directory / NODE_LOG) for node in layout}
    nodes = [NodeState(node.id, node.pid, node.exit_code, logs[node.id]) for node in local.nodes]
    write_state(_data_of(layout), ClusterState(os.getpid(), _bootstrap(layout), nodes))


def _data_of(layout: list[NodeLayout]) -> Path:
    return layout[0].directory.parent


def _bootstrap(layout: list[NodeLayout]) -> str:
    return ",".join(node.broker_address for node in layout if node.broker_address is not None)


def _wait_until_it_serves(local: "LocalCluster", layout: list[NodeLayout], stop: SignalFlag) -> int | None:
    """Waits until every broker knows all the others as active. Returns the leader of the quorum."""
    deadline = time.monotonic() + _SERVE_S
    reason = ""
    while not stop.is_set():
        local.check_alive()
        leader, reason = _view_of_all(layout)
        if not reason:
            return leader
        if time.monotonic() > deadline:
            raise CommandError(f"the cluster does not serve within {_SERVE_S:.0f} s: {reason}")
        stop.wait(_POLL_S)
    return None


def _view_of_all(layout: list[NodeLayout]) -> tuple[int | None, str]:
    """The leader of the quorum, and why the cluster cannot serve yet; empty if it can."""
    from ottla.admin.brokers import ACTIVE, list_brokers
    from ottla.admin.cluster import Cluster, ClusterError
    from ottla.admin.quorum import describe_quorum

    wanted = {node.node_id for node in layout if node.broker_address is not None}
    leader = None
    for node in layout:
        if node.broker_address is None:
            continue
        try:
            view = Cluster(node.broker_address)
            leader = describe_quorum(view).leader_id
            active = {broker.id for broker in list_brokers(view, None) if broker.state == ACTIVE}
        except ClusterError as error:
            return None, str(error)
        if leader is None:
            return None, "the quorum has no leader"
        if missing := wanted - active:
            return None, f"broker {min(missing)} is not active"
    return leader, ""


def _print_ready(
    local: "LocalCluster", layout: list[NodeLayout], cluster_id: str, leader: int | None, as_json: bool
) -> None:
    brokers = _bootstrap(layout)
    pids = {node.id: node.pid for node in local.nodes}
    lines = [_node_line(node, pids[node.node_id], leader) for node in layout]
    if as_json:
        print_json({"ready": brokers, "cluster_id": cluster_id, "nodes": lines})
    else:
        print(f"ready {brokers}")
        print_table(
            [">NODE", ">PID", "ROLES", "ADDRESS", "CONTROLLER ADDRESS", "QUORUM", "LOG"],
            [tuple("-" if value is None else value for value in line.values()) for line in lines],
        )
    sys.stdout.flush()


def _node_line(node: NodeLayout, pid: int, leader: int | None) -> dict[str, Any]:
    role = None
    if node.controller_address is not None:
        role = "leader" if node.node_id == leader else "voter"
    return {
        "id": node.node_id,
        "pid": pid,
        "roles": node.roles,
        "address": node.broker_address,
        "controller_address": node.controller_address,
        "quorum": role,
        "log": str(node.directory / NODE_LOG),
    }


def _report_end(node: "Node", layout: list[NodeLayout], as_json: bool) -> None:
    if as_json:
        print_json({"node": node.id, "pid": node.pid, "exit_code": node.exit_code})
        sys.stdout.flush()
    path = next(found.properties_path for found in layout if found.node_id == node.id)
    print_error(
        f"{node} {node.ending()}. {node.log_tail()}\nStart it again with: ottla serve --config {path}"
    )
