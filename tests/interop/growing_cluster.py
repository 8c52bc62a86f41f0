"""A cluster of real processes whose voters are in its log, and change while it runs (KIP-853)."""

import contextlib
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from tests.interop.cluster_nodes import OTTLA_COMMAND, ClusterNode
from tests.interop.clusters import READY_TIMEOUT_S, Cluster, NodeSpec, new_cluster_id

COMMAND_TIMEOUT_S = 60
# What `ottla quorum` and Kafka's tool say.
TIMED_OUT = ("TIMED_OUT", "TimeoutException")


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
        done = subprocess.run(
            [*OTTLA_COMMAND, *arguments],
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, f"ottla {' '.join(arguments)}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def observers(self) -> list[int]:
        quorum = self.quorum()
        return [] if quorum is None else [int(observer.replica_id) for observer in quorum.observers]

    def change_voters(self, change: Callable[[], object], is_done: Callable[[], bool]) -> None:
        """Runs a command. It is repeated if an election made it fail, or if it got no response in time: then it may
        have changed the voters all the same.
        """
        deadline = time.monotonic() + READY_TIMEOUT_S
        while True:
            epoch = self._epoch()
            try:
                change()
                return
            except AssertionError as error:
                if is_done():
                    return
                is_passing = self._epoch() != epoch or any(text in str(error) for text in TIMED_OUT)
                if not is_passing or time.monotonic() > deadline:
                    raise

    def add_voter(self, node_id: int, add: Callable[[], object]) -> None:
        """Runs the command when the node fetches the log."""
        self.wait_until(lambda: node_id in self.observers(), f"node {node_id} is an observer")
        self.change_voters(add, lambda: node_id in self.voters())

    def add_voter_with_ottla(self, node_id: int) -> None:
        bootstrap = ",".join(node.bootstrap for node in self.running_brokers)
        options = (
            "--config",
            str(self.nodes[node_id].config_path),
            "--bootstrap",
            bootstrap,
            "--timeout",
            "14",
        )
        self.add_voter(node_id, lambda: self.ottla("quorum", "add", *options))

    def remove_voter(self, node_id: int, remove: Callable[[], object]) -> None:
        self.change_voters(remove, lambda: node_id not in self.voters())

    def _epoch(self) -> int:
        self.controller_id()
        return int(self.wait_for(self.quorum, "a controller leads").leader_epoch)

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
    initial: Sequence[int] = (),
) -> Iterator[GrowingCluster]:
    cluster = GrowingCluster(folder, specs, set, own, initial)
    try:
        cluster.format()
        cluster.start()
        yield cluster
    finally:
        cluster.kill()
