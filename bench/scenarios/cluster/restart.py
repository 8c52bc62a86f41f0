"""A rolling restart while a client produces: the longest time in which no record was acknowledged."""

import time
from concurrent.futures import Future, ThreadPoolExecutor

from confluent_kafka.admin import NewTopic

from bench.nodes import NODES, RunningCluster
from bench.scenario import Metric, Scenario, Sizes
from bench.scenarios.cluster.failover import longest_gap
from bench.sides import Side

TOPIC = "restarts"


def run(side: Side, sizes: Sizes) -> dict[str, float]:
    """The nodes of both sides are restarted in the same way; the sizes do not matter."""
    restarting: Future[float] | None = None
    with side.cluster() as cluster, ThreadPoolExecutor(max_workers=1) as thread:
        cluster.create_topic(NewTopic(TOPIC, 1, NODES, config={"min.insync.replicas": "2"}))

        def restart() -> None:
            nonlocal restarting
            restarting = thread.submit(restart_all, cluster)

        def is_over() -> bool:
            return restarting is not None and restarting.done()

        gap = longest_gap(cluster, TOPIC, restart, is_over=is_over)
        assert restarting is not None
        return {"without a record": gap, "restart": restarting.result()}


def restart_all(cluster: RunningCluster) -> float:
    """A clean stop of each node, and its start; the next one when all replicas are in sync. Returns the seconds."""
    began = time.monotonic()
    for node_id, node in cluster.nodes.items():
        node.stop()
        cluster.start()
        cluster.wait_for_replicas(restarted=node_id)
    return time.monotonic() - began


SCENARIOS = (
    Scenario(
        "cluster-restart",
        "a rolling restart of three nodes, each stopped with SIGTERM and started again when all replicas are in "
        "sync: the longest time without an acknowledged record of a partition, replication 3, acks=all, default "
        "timeouts",
        (
            Metric("without a record", "s", higher_is_better=False, target=1.0),
            Metric("restart", "s", higher_is_better=False),
        ),
        run,
    ),
)
