"""Nodes whose `controller.quorum.voters` differ. As in Kafka since KIP-853, no request is rejected for that:
INCONSISTENT_VOTER_SET is not used any more. So a warning must say what is wrong.
"""

import asyncio
import logging
import re
from typing import Any

import pytest
from tests.unit.broker.quorum.network_cluster import PORT, NetworkCluster, in_network_cluster
from tests.unit.broker.quorum.test_handlers_of_the_quorum import Nodes, begin, partitions_of, vote, with_nodes

from ottla.model.errors import ErrorCode

ADVICE = "Set controller.quorum.voters to the same nodes in the configs of all nodes"
STRANGER = 9


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if ADVICE in record.getMessage()]


async def error_of(nodes: Nodes, request: Any) -> ErrorCode:
    (partition,) = partitions_of(await nodes.follower.request(request))
    error: ErrorCode = partition.error_code
    return error


def test_a_candidate_that_is_no_voter_gets_the_vote_and_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    async def check(nodes: Nodes) -> None:
        epoch = nodes.epoch + 1
        request = vote(
            replica_id=STRANGER, replica_epoch=epoch, last_offset=10_000, last_offset_epoch=epoch - 1
        )
        for _ in range(2):
            (partition,) = partitions_of(await nodes.follower.request(request))
            assert (partition.error_code, partition.vote_granted) == (ErrorCode.none, True)
        assert warnings_in(caplog) == [
            f"node 9 takes part in an election of the quorum, but the voters of node {nodes.follower_id} are "
            f"[1, 2, 3]: two leaders are possible. {ADVICE}"
        ]

    with_nodes(check)


def test_a_leader_that_is_no_voter_is_followed_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    async def check(nodes: Nodes) -> None:
        request = begin(leader_id=STRANGER, leader_epoch=nodes.epoch + 1)
        assert await error_of(nodes, request) is ErrorCode.none
        assert nodes.cluster.quorums[nodes.follower_id].leader_id == STRANGER
        await asyncio.sleep(0.1)
        assert len(warnings_in(caplog)) == 1

    with_nodes(check)


def test_requests_with_many_ids_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def check(nodes: Nodes) -> None:
        for replica_id in range(-5, 100):
            error = await error_of(
                nodes, vote(replica_id=replica_id, replica_epoch=nodes.epoch, pre_vote=True)
            )
            assert error is (ErrorCode.invalid_request if replica_id < 0 else ErrorCode.none)
        assert len(warnings_in(caplog)) == 16

    with_nodes(check)


def test_nodes_with_other_voters_do_not_disturb_the_leader_and_both_sides_are_warned(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)

    async def check(cluster: NetworkCluster) -> None:
        leader = await cluster.leader()
        others = [node_id for node_id in (1, 2, 3) if node_id != leader]
        voters = ",".join(f"{node_id}@node{node_id}:{PORT}" for node_id in (*others, 4))
        await cluster.start(4, process_roles="broker,controller", controller_quorum_voters=voters)
        epoch = cluster.quorums[leader].driver.node.epoch
        await cluster.create("created")
        await cluster.agree()
        assert await cluster.leader() == leader
        assert cluster.quorums[leader].driver.node.epoch == epoch
        pairs = re.findall(r"node (\d) takes part .* voters of node (\d) are", "\n".join(warnings_in(caplog)))
        assert (str(leader), "4") in pairs
        assert ("4", str(others[0])) in pairs

    in_network_cluster(check)
