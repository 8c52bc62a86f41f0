"""A cluster of real processes whose voters are in its log, and change while it runs (KIP-853)."""

import contextlib
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.interop.cluster_nodes import OTTLA_COMMAND, ClusterNode
from tests.interop.clusters import READY_TIMEOUT_S, Cluster, NodeSpec, new_cluster_id

COMMAND_TIMEOUT_S = 60


class GrowingCluster(Cluster):
    """Node 1 is the first voter, or there are several `initial` ones. The others start as observers, and find them by
    their addresses.
    """

    def __init__(
        self,
        folder: Path,
        specs: Sequence[NodeSpec],
        set: Mapping[str, str] | None = None,
        own: Mapping[int, Mapping[str, str]] | None = None,
        initial: Sequence[int] = (),
    ) -> None:
        super().__init__(folder, specs, set, own=own)
        # --standalone if there are none
        self._initial = ",".join(
            f"{node_id}@{self.nodes[node_id].controller_address}:{new_cluster_id()}" for node_id in initial
        )
        self._voters = initial or (1,)

    def properties_of(self, node: ClusterNode) -> dict[str, str]:
        properties = super().properties_of(node)
        del properties["controller.quorum.voters"]
        servers = ",".join(other.controller_address for other in self.nodes.values() if other.is_controller)
        return {"controller.quorum.bootstrap.servers": servers} | properties

    def format(self, *features: str) -> None:
        assert not features, "the nodes of this cluster are formatted with different flags"
        for node in self.nodes.values():
            node.write_config(self.properties_of(node))
            if node.node_id not in self._voters:
                self.format_node(node, "--no-initial-controllers")
            elif self._initial:
                self.format_node(node, "--initial-controllers", self._initial)
            else:
                self.format_node(node, "--standalone")

    def format_node(self, node: ClusterNode, *flags: str) -> None:
        formatting = node.format(self.cluster_id, *(flags if node.is_controller else []))
        said, _ = formatting.communicate(timeout=COMMAND_TIMEOUT_S)
        assert formatting.returncode == 0, f"{node} cannot be formatted:\n{said.decode()}"

    def ottla(self, *arguments: str) -> str:
        done = _run_ottla(arguments)
        assert done.returncode == 0, f"ottla {' '.join(arguments)}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def add_voter(self, node: ClusterNode) -> None:
        """Tries again while the command fails: the node may just have started, or the leader may change."""
        bootstrap = ",".join(broker.bootstrap for broker in self.running_brokers)
        command = ("quorum", "add", "--config", str(node.config_path), "--bootstrap", bootstrap)
        self.wait_until(
            lambda: _run_ottla(command).returncode == 0 or node.node_id in self.voters(),
            f"{node} is a voter",
            COMMAND_TIMEOUT_S,
        )

    def voters(self) -> list[int]:
        quorum = self.quorum()
        return [] if quorum is None else sorted(int(voter.replica_id) for voter in quorum.current_voters)

    def wait_for_voters(self, *voters: int) -> None:
        self.wait_until(lambda: self.voters() == list(voters), f"the voters are {voters}", READY_TIMEOUT_S)


def _run_ottla(arguments: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*OTTLA_COMMAND, *arguments], capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False
    )


@contextlib.contextmanager
def run_growing_cluster(
    folder: Path,
    specs: Sequence[NodeSpec],
    set: Mapping[str, str] | None = None,
    own: Mapping[int, Mapping[str, str]] | None = None,
    initial: Sequence[int] = (),
) -> Iterator[GrowingCluster]:
    cluster = GrowingCluster(folder, specs, set, own, initial)
    try:
        cluster.format()
        cluster.start()
        yield cluster
    finally:
        cluster.kill()
