"""What `ottla cluster up` and `ottla cluster restart` tell each other, in files of the cluster's folder.

`cluster.json` says which processes run; `node-N/restart` asks to restart a node.
"""

import json
import os
from pathlib import Path
from typing import NamedTuple

from ottla.cli.output import CommandError

STATE_FILE = "cluster.json"
REQUEST_FILE = "restart"


class NodeState(NamedTuple):
    """`exit_code` is None while it runs."""

    id: int
    pid: int
    exit_code: int | None
    log: str


class ClusterState(NamedTuple):
    """`pid` is that of `ottla cluster up`, `bootstrap` the addresses of all brokers."""

    pid: int
    bootstrap: str
    nodes: list[NodeState]

    def node(self, node_id: int) -> NodeState | None:
        return next((node for node in self.nodes if node.id == node_id), None)


def write_state(data: Path, state: ClusterState) -> None:
    """Replaces the file at once: a reader never sees a half of it."""
    lines = {
        "pid": state.pid,
        "bootstrap": state.bootstrap,
        "nodes": [node._asdict() for node in state.nodes],
    }
    unfinished = data / f"{STATE_FILE}.tmp"
    unfinished.write_text(json.dumps(lines, indent=2) + "\n", encoding="utf-8")
    unfinished.replace(data / STATE_FILE)


def remove_state(data: Path) -> None:
    (data / STATE_FILE).unlink(missing_ok=True)


def read_state(data: Path) -> ClusterState:
    """Raises CommandError if no `ottla cluster up` runs the cluster in this folder."""
    path = data / STATE_FILE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        nodes = [NodeState(**node) for node in found["nodes"]]
        state = ClusterState(int(found["pid"]), str(found["bootstrap"]), nodes)
    except FileNotFoundError:
        raise CommandError(
            f"no cluster runs in {data}. Check --data, or set --bootstrap and --command for nodes that "
            "`ottla cluster up` has not started"
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CommandError(f"{path} cannot be read: {error}. Restart `ottla cluster up`") from None
    try:
        os.kill(state.pid, 0)
    except ProcessLookupError:
        raise CommandError(
            f"`ottla cluster up` of {data}, process {state.pid}, no longer runs. Start it again"
        ) from None
    except PermissionError:
        pass  # it runs, as another user
    return state


def request_restart(data: Path, node_id: int) -> None:
    (data / f"node-{node_id}" / REQUEST_FILE).touch()


def take_restart_request(data: Path, node_id: int) -> bool:
    """Whether somebody has asked for the node; the request is gone then."""
    path = data / f"node-{node_id}" / REQUEST_FILE
    if not path.exists():
        return False
    path.unlink(missing_ok=True)
    return True
