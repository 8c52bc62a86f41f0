"""The transport of the simulated quorum under faults of links and nodes."""

import asyncio

import pytest

from ottla.core.raft.log_state import OffsetAndEpoch
from ottla.core.raft.messages import VoteRequest
from ottla.sim.env import World, simulate
from ottla.sim.quorum_cluster import QuorumCluster
from ottla.sim.quorum_transport import REQUEST_TIMEOUT_S, SimPeers

PRE_VOTE = VoteRequest(100, 1, OffsetAndEpoch(0, 0), is_pre_vote=True)


def new_cluster(world: World) -> QuorumCluster:
    return QuorumCluster(world, (1, 2, 3))


def test_a_call_fails_at_once_if_the_process_is_dead_and_after_the_timeout_if_the_power_is_lost() -> None:
    async def main(world: World) -> None:
        cluster, loop = new_cluster(world), asyncio.get_running_loop()
        await cluster.start()
        peers = SimPeers(cluster.transport, 1)
        await cluster.nodes[2].kill()
        await cluster.nodes[3].lose_power()
        with pytest.raises(ConnectionResetError):
            await peers.call(2, PRE_VOTE)
        before = loop.time()
        with pytest.raises(TimeoutError):
            await peers.call(3, PRE_VOTE)
        assert loop.time() - before == pytest.approx(REQUEST_TIMEOUT_S)

    simulate(main, 1)


def test_a_request_over_a_cut_link_arrives_when_it_heals_though_its_sender_has_given_up() -> None:
    async def main(world: World) -> None:
        cluster = new_cluster(world)
        await cluster.start()
        await asyncio.sleep(10)
        target = cluster.nodes[2].quorum
        assert target is not None
        world.network.cut("node1", "node2")
        with pytest.raises(TimeoutError):
            await SimPeers(cluster.transport, 1).call(2, PRE_VOTE)
        assert target.driver.node.epoch < 100
        world.network.heal()
        await asyncio.sleep(1)
        assert target.driver.node.epoch == 100

    simulate(main, 1)


def test_a_response_over_a_cut_link_is_late_though_the_request_arrives() -> None:
    async def main(world: World) -> None:
        cluster = new_cluster(world)
        await cluster.start()
        target = cluster.nodes[2].quorum
        assert target is not None
        world.network.cut("node2", "node1")
        world.network.cut("node2", "node3")  # so that it wins no election
        with pytest.raises(TimeoutError):
            await SimPeers(cluster.transport, 1).call(2, PRE_VOTE)
        assert target.driver.node.epoch == 100

    simulate(main, 1)


def test_a_paused_node_responds_when_it_resumes() -> None:
    async def main(world: World) -> None:
        cluster = new_cluster(world)
        await cluster.start()
        cluster.nodes[2].pause()
        call = asyncio.create_task(cluster.transport.exchange(1, 2, PRE_VOTE))
        await asyncio.sleep(5)
        assert not call.done()
        cluster.nodes[2].resume()
        assert (await call).epoch == 100

    simulate(main, 1)


def test_a_node_whose_power_fails_in_a_disk_operation_is_dead_for_its_peers() -> None:
    async def main(world: World) -> None:
        cluster = new_cluster(world)
        await cluster.start()
        node = cluster.nodes[2]
        node.disk.crash_after(0)
        await asyncio.sleep(5)
        assert node.quorum is None
        with pytest.raises(TimeoutError):
            await SimPeers(cluster.transport, 1).call(2, PRE_VOTE)
        await node.lose_power()
        await node.start()
        assert node.quorum is not None

    simulate(main, 1)
