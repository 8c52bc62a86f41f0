"""A quorum of one or three voters with brokers beside it, on directories of Kafka or over a long idle time."""

import asyncio

from ottla.broker.quorum.metadata_log import METADATA_PARTITION
from ottla.broker.quorum.snapshots import encode_snapshot
from ottla.sim.env import World, simulate
from ottla.sim.quorum_cluster import QuorumCluster, QuorumNode

BOOTSTRAP = "00000000000000000000-0000000000.checkpoint"


def write_bootstrap_snapshot(node: QuorumNode) -> None:
    """As `kafka-storage format --standalone` does, without records."""
    directory = f"{node.log_dir}/{METADATA_PARTITION}"
    node.disk.make_dirs(directory)
    snapshot = encode_snapshot([], epoch=0, last_contained_log_timestamp=0, now_ms=0)
    node.disk.write_atomically(f"{directory}/{BOOTSTRAP}", snapshot)


def test_a_quorum_on_directories_with_an_empty_snapshot_becomes_active() -> None:
    async def main(world: World) -> None:
        cluster = QuorumCluster(world, (1, 2, 3), (7,))
        for node_id in (1, 2, 3):
            write_bootstrap_snapshot(cluster.nodes[node_id])
        await cluster.start()
        await asyncio.sleep(20)
        (active,) = cluster.active_nodes()
        assert active.quorum is not None
        for node in cluster.nodes.values():
            assert node.quorum is not None
            assert node.quorum.driver.node.high_watermark > 0
            assert node.quorum.driver.node.log.end_offset >= active.quorum.driver.node.high_watermark
        cluster.checkers.raise_violation()

    simulate(main, 1)


def test_fetches_of_observers_that_time_out_leave_nothing_behind() -> None:
    async def main(world: World) -> None:
        cluster = QuorumCluster(world, (1,), (7, 8, 9))
        await cluster.start()
        await asyncio.sleep(120)
        assert cluster.nodes[1].quorum is not None
        assert len(cluster.nodes[1].quorum.driver._changed) <= len(cluster.nodes)

    simulate(main, 1)
