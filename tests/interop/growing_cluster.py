"""A cluster of real processes whose voters are in its log, and change while it runs (KIP-853)."""

import contextlib
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.interop.cluster_nodes import OTTLA_COMMAND, ClusterNode
from tests.interop.clusters import READY_TIMEOUT_S, Cluster, NodeSpec

COMMAND_TIMEOUT_S = 60


class GrowingCluster(Cluster):
    """Node 1 is the first voter. The others start as observers, and find it by its address."""

    def properties_of(self, node: ClusterNode) -> dict[str, str]:
        properties = super().properties_of(node)
        del properties["controller.quorum.voters"]
        servers = ",".join(other.controller_address for other in self.nodes.values() if other.is_controller)
        return {"controller.quorum.bootstrap.servers": servers} | properties

    def format(self, *features: str) -> None:
        assert not features, "the nodes of this cluster are formatted with different flags"
        for node in self.nodes.values():
            node.write_config(self.properties_of(node))
            self.format_node(node, "--standalone" if node.node_id == 1 else "--no-initial-controllers")

    def format_node(self, node: ClusterNode, flag: str) -> None:
        formatting = node.format(self.cluster_id, *([flag] if node.is_controller else []))
        said, _ = formatting.communicate(timeout=COMMAND_TIMEOUT_S)
        assert formatting.returncode == 0, f"{node} cannot be formatted:\n{said.decode()}"

    def ottla(self, *arguments: str) -> str:
        done = subprocess.run(
            [*OTTLA_COMMAND, *arguments],
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, f"ottla {' '.join(arguments)}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def voters(self) -> list[int]:
        quorum = self.quorum()
        return [] if quorum is None else sorted(int(voter.replica_id) for voter in quorum.current_voters)

    def wait_for_voters(self, *voters: int) -> None:
        self.wait_until(lambda: self.voters() == list(voters), f"the voters are {voters}", READY_TIMEOUT_S)


@contextlib.contextmanager
def run_growing_cluster(
    folder: Path,
    specs: Sequence[NodeSpec],
    set: Mapping[str, str] | None = None,
    own: Mapping[int, Mapping[str, str]] | None = None,
) -> Iterator[GrowingCluster]:
    cluster = GrowingCluster(folder, specs, set, own=own)
    try:
        cluster.format()
        cluster.start()
        yield cluster
    finally:
        cluster.kill()
