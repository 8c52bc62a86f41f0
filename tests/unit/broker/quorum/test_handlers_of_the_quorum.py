"""The requests between the nodes of a quorum, over the wire: errors, old versions, odd requests."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import fields, replace
from datetime import timedelta
from random import Random
from typing import Any
from uuid import UUID

import pytest
from kio.index import load_request_schema
from kio.schema.begin_quorum_epoch.v1 import request as begin_v1
from kio.schema.end_quorum_epoch.v0 import request as end_v0
from kio.schema.end_quorum_epoch.v1 import request as end_v1
from kio.schema.fetch.v18 import request as fetch_v18
from kio.schema.fetch_snapshot.v1 import request as snapshot_v1
from kio.schema.update_raft_voter.v0.request import KRaftVersionFeature, UpdateRaftVoterRequest
from kio.schema.vote.v2 import request as vote_v2
from tests.unit.broker.quorum.network_cluster import (
    CLUSTER_ID,
    PORT,
    VOTERS,
    NetworkCluster,
    config_of,
    in_network_cluster,
)

from ottla.broker.quorum.metadata_log import MetadataLog
from ottla.broker.quorum.settings import QuorumSettings
from ottla.broker.quorum.voters import parse_voters, voter_endpoints, voter_ids
from ottla.core.raft.messages import UNKNOWN_HIGH_WATERMARK
from ottla.core.raft.roles import Prospective
from ottla.model.config import BrokerConfig
from ottla.model.errors import ErrorCode
from ottla.model.ids import METADATA_TOPIC, METADATA_TOPIC_ID
from ottla.protocol.messages import converter
from ottla.records.records import read_batches

NO_WAIT = timedelta()


def vote(
    cluster_id: str | None = CLUSTER_ID, voter_id: int = -1, topic: str = METADATA_TOPIC, **fields: Any
) -> Any:
    defaults: dict[str, Any] = {
        "partition_index": 0,
        "replica_epoch": 1,
        "replica_id": 2,
        "replica_directory_id": None,
        "voter_directory_id": None,
        "last_offset_epoch": 0,
        "last_offset": 0,
        "pre_vote": False,
    }
    partition = vote_v2.PartitionData(**(defaults | fields))
    topics = (vote_v2.TopicData(topic_name=topic, partitions=(partition,)),)
    return vote_v2.VoteRequest(cluster_id=cluster_id, voter_id=voter_id, topics=topics)


def begin(
    cluster_id: str | None = CLUSTER_ID, voter_id: int = -1, topic: str = METADATA_TOPIC, **fields: Any
) -> Any:
    defaults: dict[str, Any] = {
        "partition_index": 0,
        "voter_directory_id": None,
        "leader_id": 2,
        "leader_epoch": 1,
    }
    partition = begin_v1.PartitionData(**(defaults | fields))
    topics = (begin_v1.TopicData(topic_name=topic, partitions=(partition,)),)
    return begin_v1.BeginQuorumEpochRequest(
        cluster_id=cluster_id, voter_id=voter_id, topics=topics, leader_endpoints=()
    )


def end(cluster_id: str | None = CLUSTER_ID, topic: str = METADATA_TOPIC, **fields: Any) -> Any:
    defaults: dict[str, Any] = {
        "partition_index": 0,
        "leader_id": 2,
        "leader_epoch": 1,
        "preferred_candidates": (),
    }
    partition = end_v1.PartitionData(**(defaults | fields))
    topics = (end_v1.TopicData(topic_name=topic, partitions=(partition,)),)
    return end_v1.EndQuorumEpochRequest(cluster_id=cluster_id, topics=topics, leader_endpoints=())


def fetch(
    cluster_id: str | None = CLUSTER_ID,
    topic: Any = METADATA_TOPIC_ID,
    replica_id: int = -1,
    wait: timedelta = NO_WAIT,
    max_bytes: int = 1 << 20,
    **fields: Any,
) -> Any:
    defaults: dict[str, Any] = {
        "partition": 0,
        "current_leader_epoch": 1,
        "fetch_offset": 0,
        "last_fetched_epoch": 0,
        "log_start_offset": -1,
        "partition_max_bytes": 0,
        "high_watermark": UNKNOWN_HIGH_WATERMARK,
    }
    partition = fetch_v18.FetchPartition(**(defaults | fields))
    return fetch_v18.FetchRequest(
        cluster_id=cluster_id,
        replica_state=fetch_v18.ReplicaState(replica_id=replica_id, replica_epoch=-1),
        max_wait=wait,
        min_bytes=0,
        max_bytes=max_bytes,
        topics=(fetch_v18.FetchTopic(topic_id=topic, partitions=(partition,)),),
        forgotten_topics_data=(),
    )


def fetch_snapshot(
    cluster_id: str | None = CLUSTER_ID,
    topic: str = METADATA_TOPIC,
    snapshot: tuple[int, int] = (0, 0),
    max_bytes: int = 1 << 20,
    **fields: Any,
) -> Any:
    defaults: dict[str, Any] = {"partition": 0, "current_leader_epoch": 1, "position": 0}
    partition = snapshot_v1.PartitionSnapshot(
        snapshot_id=snapshot_v1.SnapshotId(end_offset=snapshot[0], epoch=snapshot[1]), **(defaults | fields)
    )
    return snapshot_v1.FetchSnapshotRequest(
        cluster_id=cluster_id,
        replica_id=-1,
        max_bytes=max_bytes,
        topics=(snapshot_v1.TopicSnapshot(name=topic, partitions=(partition,)),),
    )


REQUESTS: dict[str, Callable[..., Any]] = {
    "vote": vote,
    "begin": begin,
    "end": end,
    "fetch": fetch,
    "fetch_snapshot": fetch_snapshot,
}


def partitions_of(response: Any) -> Any:
    topics = response.responses if hasattr(response, "responses") else response.topics
    return [partition for topic in topics for partition in topic.partitions]


def leader_in(response: Any) -> tuple[int, int]:
    (partition,) = partitions_of(response)
    current = getattr(partition, "current_leader", partition)
    return current.leader_id, current.leader_epoch


class Nodes:
    """A leader and a follower, with a client for each."""

    def __init__(self, cluster: NetworkCluster, leader: int, follower: int) -> None:
        self.cluster = cluster
        self.leader_id, self.follower_id = leader, follower
        self.leader, self.follower = cluster.client(leader), cluster.client(follower)

    @property
    def epoch(self) -> int:
        return self.cluster.quorums[self.leader_id].driver.node.epoch


def with_nodes(test: Callable[[Nodes], Awaitable[None]], settings: QuorumSettings | None = None) -> None:
    async def check(cluster: NetworkCluster) -> None:
        nodes = Nodes(cluster, await cluster.leader(), await cluster.follower())
        await cluster.agree()
        await test(nodes)
        await cluster.create("afterwards")
        await cluster.agree()

    in_network_cluster(check, settings=settings)


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_of_another_cluster_is_rejected_as_a_whole(name: str) -> None:
    async def check(nodes: Nodes) -> None:
        for client in (nodes.leader, nodes.follower):
            response = await client.request(REQUESTS[name](cluster_id="another"))
            assert response.error_code is ErrorCode.inconsistent_cluster_id
            assert partitions_of(response) == []
            response = await client.request(REQUESTS[name](cluster_id=None))
            assert response.error_code is ErrorCode.none

    with_nodes(check)


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_for_anything_but_the_metadata_log_is_invalid(name: str) -> None:
    async def check(nodes: Nodes) -> None:
        good = REQUESTS[name]()
        (topic,) = good.topics
        (partition,) = topic.partitions
        index = "partition" if name.startswith("fetch") else "partition_index"
        other = "other" if name != "fetch" else UUID(int=77)
        for topics in (
            (),
            (topic, topic),
            (replace(topic, partitions=()),),
            (replace(topic, partitions=(partition, partition)),),
            (replace(topic, partitions=(replace(partition, **{index: 1}),)),),
            REQUESTS[name](topic=other).topics,
        ):
            response = await nodes.leader.request(replace(good, topics=topics))
            assert response.error_code is ErrorCode.invalid_request
            assert partitions_of(response) == []

    with_nodes(check)


@pytest.mark.parametrize("name", REQUESTS)
def test_an_error_names_the_leader_its_epoch_and_its_address(name: str) -> None:
    async def check(nodes: Nodes) -> None:
        old = "replica_epoch" if name == "vote" else "leader_epoch"
        fields = {"current_leader_epoch" if name.startswith("fetch") else old: nodes.epoch - 1}
        if name == "vote":
            fields["last_offset_epoch"] = -1
        response = await nodes.follower.request(REQUESTS[name](**fields))
        assert response.error_code is ErrorCode.none
        (partition,) = partitions_of(response)
        expected = ErrorCode.invalid_request if name == "vote" else ErrorCode.fenced_leader_epoch
        assert partition.error_code is expected
        assert leader_in(response) == (nodes.leader_id, nodes.epoch)
        (hint,) = response.node_endpoints
        assert (hint.node_id, hint.host, hint.port) == (nodes.leader_id, f"node{nodes.leader_id}", PORT)

    with_nodes(check)


@pytest.mark.parametrize("name", ["vote", "begin"])
def test_a_request_for_another_voter_is_rejected(name: str) -> None:
    async def check(nodes: Nodes) -> None:
        field = "replica_epoch" if name == "vote" else "leader_epoch"
        request = REQUESTS[name](voter_id=nodes.leader_id, **{field: nodes.epoch + 5})
        response = await nodes.follower.request(request)
        (partition,) = partitions_of(response)
        assert partition.error_code is ErrorCode.invalid_voter_key
        assert nodes.cluster.quorums[nodes.follower_id].driver.node.epoch == nodes.epoch

    with_nodes(check)


@pytest.mark.parametrize("version", range(3))
def test_a_follower_of_a_live_leader_votes_for_nobody_else(version: int) -> None:
    async def check(nodes: Nodes) -> None:
        candidate = next(voter for voter in VOTERS if voter not in (nodes.leader_id, nodes.follower_id))
        newest: Any = vote(replica_epoch=nodes.epoch, replica_id=candidate, last_offset=10_000)
        schema: Any = load_request_schema(newest.__api_key__, version)
        response = await nodes.follower.request(converter(vote_v2.VoteRequest, schema)(newest))
        (partition,) = partitions_of(response)
        assert (partition.error_code, partition.vote_granted) == (ErrorCode.none, False)
        assert leader_in(response) == (nodes.leader_id, nodes.epoch)

    with_nodes(check)


def test_end_quorum_epoch_of_version_0_makes_the_successor_stand_for_election() -> None:
    async def check(nodes: Nodes) -> None:
        partition = end_v0.PartitionData(
            partition_index=0,
            leader_id=nodes.leader_id,
            leader_epoch=nodes.epoch,
            preferred_successors=(nodes.follower_id,),
        )
        topic = end_v0.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,))
        response = await nodes.follower.request(
            end_v0.EndQuorumEpochRequest(cluster_id=CLUSTER_ID, topics=(topic,))
        )
        assert partitions_of(response)[0].error_code is ErrorCode.none
        await asyncio.sleep(0)
        # It stands at once; the others have heard from the leader and do not support it.
        assert isinstance(nodes.cluster.quorums[nodes.follower_id].driver.node.role, Prospective)

    with_nodes(check)


def test_the_metadata_log_is_served_to_anyone_who_knows_the_epoch() -> None:
    async def check(nodes: Nodes) -> None:
        node = nodes.cluster.quorums[nodes.leader_id].driver.node
        offset, values = 0, 0
        while offset < node.log.end_offset:
            response = await nodes.leader.request(
                fetch(
                    current_leader_epoch=nodes.epoch,
                    fetch_offset=offset,
                    last_fetched_epoch=nodes.epoch,
                    max_bytes=1,
                )
                if offset
                else fetch(current_leader_epoch=nodes.epoch, max_bytes=1)
            )
            assert (response.error_code, response.session_id) == (ErrorCode.none, 0)
            (partition,) = partitions_of(response)
            assert partition.error_code is ErrorCode.none
            assert (partition.high_watermark, partition.log_start_offset) == (node.high_watermark, 0)
            (batch,) = read_batches(partition.records)
            assert batch.header.base_offset == offset
            offset, values = batch.header.next_offset, values + 1
        assert values > 2

    with_nodes(check)


def test_a_fetch_waits_for_records() -> None:
    async def check(nodes: Nodes) -> None:
        node = nodes.cluster.quorums[nodes.leader_id].driver.node
        request = fetch(
            current_leader_epoch=nodes.epoch,
            fetch_offset=node.log.end_offset,
            last_fetched_epoch=nodes.epoch,
            wait=timedelta(seconds=5),
        )
        waiting = asyncio.create_task(nodes.leader.request(request))
        await asyncio.sleep(1)
        assert not waiting.done()
        await nodes.cluster.create("a")
        (partition,) = partitions_of(await waiting)
        assert partition.records

    with_nodes(check)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"fetch_offset": -1}, ErrorCode.invalid_request),
        ({"last_fetched_epoch": -1}, ErrorCode.invalid_request),
        ({"last_fetched_epoch": 2**31 - 1}, ErrorCode.invalid_request),
        ({"wait": timedelta(milliseconds=-1)}, ErrorCode.invalid_request),
        ({"current_leader_epoch": 2**31 - 1}, ErrorCode.unknown_leader_epoch),
        ({"max_bytes": -5}, ErrorCode.none),
    ],
)
def test_an_odd_fetch_gets_an_error(fields: dict[str, Any], error: ErrorCode) -> None:
    async def check(nodes: Nodes) -> None:
        request = fetch(**({"current_leader_epoch": nodes.epoch} | fields))
        (partition,) = partitions_of(await nodes.leader.request(request))
        assert partition.error_code is error

    with_nodes(check)


def test_a_fetch_beyond_the_end_of_the_log_diverges() -> None:
    async def check(nodes: Nodes) -> None:
        node = nodes.cluster.quorums[nodes.leader_id].driver.node
        request = fetch(current_leader_epoch=nodes.epoch, fetch_offset=2**62, last_fetched_epoch=nodes.epoch)
        (partition,) = partitions_of(await nodes.leader.request(request))
        assert (partition.diverging_epoch.epoch, partition.diverging_epoch.end_offset) == (
            nodes.epoch,
            node.log.end_offset,
        )
        assert not partition.records

    with_nodes(check)


@pytest.mark.parametrize("version", [4, 6, 7, 11, 12, 13, 16, 17])
def test_older_fetches_get_a_response(version: int) -> None:
    async def check(nodes: Nodes) -> None:
        newest: Any = fetch(current_leader_epoch=nodes.epoch)
        schema: Any = load_request_schema(newest.__api_key__, version)
        response = await nodes.leader.request(converter(fetch_v18.FetchRequest, schema)(newest))
        if version >= 13:
            (partition,) = partitions_of(response)
            assert partition.records
        elif version >= 7:
            assert response.error_code is ErrorCode.invalid_request

    with_nodes(check)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"snapshot": (7, 7)}, ErrorCode.snapshot_not_found),
        ({"snapshot": (-1, -1)}, ErrorCode.snapshot_not_found),
        ({"position": -1}, ErrorCode.position_out_of_range),
        ({"position": 2**62}, ErrorCode.position_out_of_range),
        ({"current_leader_epoch": 0}, ErrorCode.fenced_leader_epoch),
        ({"current_leader_epoch": 99}, ErrorCode.unknown_leader_epoch),
        ({"max_bytes": -1}, ErrorCode.none),
        ({}, ErrorCode.none),
    ],
)
def test_fetch_snapshot_says_what_is_wrong(fields: dict[str, Any], error: ErrorCode) -> None:
    async def check(nodes: Nodes) -> None:
        log = nodes.cluster.quorums[nodes.leader_id].driver.node.log
        for number in range(30):
            await nodes.cluster.create(f"t{number}")
        snapshot = log.snapshots[-1]
        known: dict[str, Any] = {"current_leader_epoch": nodes.epoch, "snapshot": snapshot}
        response = await nodes.leader.request(fetch_snapshot(**(known | fields)))
        (partition,) = partitions_of(response)
        assert partition.error_code is error
        assert leader_in(response) == (nodes.leader_id, nodes.epoch)
        if error is ErrorCode.none:
            assert (partition.snapshot_id.end_offset, partition.snapshot_id.epoch) == snapshot
            assert 0 < len(partition.unaligned_records) <= partition.size
        else:
            assert partition.unaligned_records == b""

    with_nodes(check, QuorumSettings(snapshot_bytes=1_500))


def test_a_snapshot_that_is_deleted_while_it_is_read_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(log: MetadataLog, snapshot: Any, position: int, max_bytes: int) -> Any:
        raise FileNotFoundError("gone")

    async def check(nodes: Nodes) -> None:
        log = nodes.cluster.quorums[nodes.leader_id].driver.node.log
        for number in range(30):
            await nodes.cluster.create(f"t{number}")
        request = fetch_snapshot(current_leader_epoch=nodes.epoch, snapshot=log.snapshots[-1])
        with monkeypatch.context() as patch:
            patch.setattr(MetadataLog, "read_snapshot", read)
            (partition,) = partitions_of(await nodes.leader.request(request))
            assert partition.error_code is ErrorCode.snapshot_not_found

    with_nodes(check, QuorumSettings(snapshot_bytes=1_500))


def update_voter(**fields: Any) -> UpdateRaftVoterRequest:
    defaults: dict[str, Any] = {
        "cluster_id": CLUSTER_ID,
        "current_leader_epoch": 1,
        "voter_id": 1,
        "voter_directory_id": UUID(int=1),
        "listeners": (),
        "k_raft_version_feature": KRaftVersionFeature(min_supported_version=0, max_supported_version=1),
    }
    return UpdateRaftVoterRequest(**(defaults | fields))


def test_the_leader_takes_note_of_a_voter() -> None:
    async def check(nodes: Nodes) -> None:
        response = await nodes.leader.request(update_voter(current_leader_epoch=nodes.epoch))
        assert response.error_code is ErrorCode.none
        leader = response.current_leader
        assert (leader.leader_id, leader.leader_epoch) == (nodes.leader_id, nodes.epoch)
        assert (leader.host, leader.port) == (f"node{nodes.leader_id}", PORT)
        for changed, error in (
            ({"cluster_id": "another"}, ErrorCode.inconsistent_cluster_id),
            ({"current_leader_epoch": nodes.epoch - 1}, ErrorCode.fenced_leader_epoch),
            ({"current_leader_epoch": nodes.epoch + 1}, ErrorCode.unknown_leader_epoch),
            ({"voter_id": 9}, ErrorCode.voter_not_found),
        ):
            request = update_voter(**({"current_leader_epoch": nodes.epoch} | changed))
            assert (await nodes.leader.request(request)).error_code is error
        response = await nodes.follower.request(update_voter(current_leader_epoch=nodes.epoch))
        assert response.error_code is ErrorCode.not_leader_or_follower

    with_nodes(check)


def test_a_node_that_stops_is_not_available() -> None:
    async def check(cluster: NetworkCluster) -> None:
        stopped = await cluster.follower()
        quorum = cluster.quorums.pop(stopped)
        await quorum.close()
        client = cluster.client(stopped)
        for name in ("vote", "begin", "end", "fetch"):
            response = await client.request(REQUESTS[name]())
            assert response.error_code is ErrorCode.broker_not_available

    in_network_cluster(check)


def odd_value(random: Random, value: Any) -> Any:
    if isinstance(value, bool):
        return random.random() < 0.5
    if isinstance(value, int):
        return random.choice([value, -1, 0, 1, 2, 3, 5, -(2**31), 1000])
    return value


def test_random_requests_get_responses_and_the_quorum_goes_on() -> None:
    async def check(nodes: Nodes) -> None:
        random = nodes.cluster.world.random
        served = 0
        for _ in range(400):
            make = random.choice(list(REQUESTS.values()))
            request = make(random.choice([CLUSTER_ID, CLUSTER_ID, None, "x"]))
            (topic,) = request.topics
            partitions = []
            for _ in range(random.choice([0, 1, 1, 1, 1, 1, 2])):
                (partition,) = topic.partitions
                changed = {
                    field.name: odd_value(random, getattr(partition, field.name))
                    for field in fields(partition)
                }
                partitions.append(replace(partition, **changed))
            topics = (replace(topic, partitions=tuple(partitions)),) * random.choice([0, 1, 1, 1, 1, 2])
            node_id = random.choice(VOTERS)
            response = await nodes.cluster.client(node_id).request(replace(request, topics=topics))
            assert isinstance(response.error_code, ErrorCode)
            served += 1
        assert served == 400
        await asyncio.sleep(10)

    with_nodes(check)


def test_voters_are_parsed_from_the_config() -> None:
    assert parse_voters(("3@c:9093", "1@[::1]:9094")) == {1: ("::1", 9094), 3: ("c", 9093)}
    assert list(parse_voters(("3@c:1", "1@a:1"))) == [1, 3]
    assert voter_ids(config_of(2)) == VOTERS
    assert voter_ids(BrokerConfig({"node.id": "7"})) == (7,)


def test_a_voter_whose_address_is_not_configured_may_have_registered_it() -> None:
    async def check(cluster: NetworkCluster) -> None:
        services = cluster.services[1]
        assert voter_endpoints(services) == {voter: ("CONTROLLER", f"node{voter}", PORT) for voter in VOTERS}
        unknown = config_of(1, controller_quorum_voters="1@node1:9093,2@0.0.0.0:0")
        assert voter_endpoints(replace(services, config=unknown)) == {1: ("CONTROLLER", "node1", 9093)}

    in_network_cluster(check)
