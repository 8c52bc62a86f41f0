"""The requests of group members to their coordinator: kio messages over a `SimClient`.

A missing response counts as REQUEST_TIMED_OUT: whether the coordinator has processed the request is not known.
"""

from datetime import timedelta
from io import BytesIO
from struct import Struct
from typing import Any, NamedTuple
from uuid import UUID

from kio.schema.consumer_group_describe.v1.request import ConsumerGroupDescribeRequest
from kio.schema.consumer_group_heartbeat.v1.request import ConsumerGroupHeartbeatRequest, TopicPartitions
from kio.schema.consumer_group_heartbeat.v1.response import ConsumerGroupHeartbeatResponse
from kio.schema.consumer_protocol_assignment.v3.data import ConsumerProtocolAssignment
from kio.schema.consumer_protocol_assignment.v3.data import TopicPartition as AssignedPartitions
from kio.schema.consumer_protocol_subscription.v3.data import ConsumerProtocolSubscription
from kio.schema.consumer_protocol_subscription.v3.data import TopicPartition as OwnedPartitions
from kio.schema.describe_groups.v6.request import DescribeGroupsRequest
from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.join_group.v9.request import JoinGroupRequest, JoinGroupRequestProtocol
from kio.schema.join_group.v9.response import JoinGroupResponse
from kio.schema.leave_group.v5.request import LeaveGroupRequest, MemberIdentity
from kio.schema.offset_commit.v9.request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kio.schema.offset_fetch.v9.request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kio.schema.sync_group.v5.request import SyncGroupRequest, SyncGroupRequestAssignment
from kio.serial import entity_reader, entity_writer

from ottla.model.errors import ErrorCode
from ottla.sim.client import SimClient, error_of

_PROTOCOL_TYPE = "consumer"
_INT16 = Struct(">h")
_VERSION = 3


class Topic(NamedTuple):
    name: str
    topic_id: UUID
    partitions: int


class Timeouts(NamedTuple):
    """In seconds. The rebalance timeout must be greater than the session timeout; otherwise a member could lose its
    partitions before its lease ends.
    """

    session: float
    rebalance: float
    heartbeat: float


class Identity(NamedTuple):
    """Identifies a member in its requests. `generation` is the member epoch in the consumer protocol."""

    member_id: str = ""
    generation: int = -1
    instance_id: str | None = None  # of a static member


class Claim(NamedTuple):
    """The partitions that a classic member reports as its own, and since which generation (KIP-429)."""

    generation: int
    partitions: tuple[int, ...]


class Committed(NamedTuple):
    partition: int
    offset: int
    metadata: str
    error_code: ErrorCode
    leader_epoch: int


class GroupClient:
    def __init__(self, client: SimClient, group_id: str, topic: Topic) -> None:
        self._client = client
        self.group_id = group_id
        self._topic = topic

    async def find_coordinator(self) -> ErrorCode:
        """Makes the broker create the offsets topic if needed. The coordinator is always the one broker."""
        response = await self._client.try_request(
            FindCoordinatorRequest(key_type=0, coordinator_keys=(self.group_id,))
        )
        return error_of(response.coordinators[0] if response is not None else None)

    # The classic protocol

    async def join(
        self, identity: Identity, timeouts: Timeouts, protocol: str, claim: Claim
    ) -> tuple[ErrorCode, JoinGroupResponse | None]:
        subscription = ConsumerProtocolSubscription(
            topics=(self._topic.name,),
            owned_partitions=(OwnedPartitions(topic=self._topic.name, partitions=claim.partitions),)
            if claim.partitions
            else (),
            generation_id=claim.generation,
        )
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout=timedelta(seconds=timeouts.session),
            rebalance_timeout=timedelta(seconds=timeouts.rebalance),
            member_id=identity.member_id,
            group_instance_id=identity.instance_id,
            protocol_type=_PROTOCOL_TYPE,
            protocols=(JoinGroupRequestProtocol(name=protocol, metadata=_encode_versioned(subscription)),),
        )
        response = await self._client.try_request(request, timeouts.rebalance + 5)
        return error_of(response), response

    def claims(self, joined: JoinGroupResponse) -> dict[str, Claim]:
        """The claims of all members, which the leader gets."""
        claims = {}
        for member in joined.members:
            subscription = entity_reader(ConsumerProtocolSubscription)(member.metadata, _INT16.size)[0]
            owned = [index for topic in subscription.owned_partitions for index in topic.partitions]
            claims[member.member_id] = Claim(subscription.generation_id, tuple(owned))
        return claims

    async def sync(
        self, identity: Identity, protocol: str, assignments: dict[str, list[int]]
    ) -> tuple[ErrorCode, tuple[int, ...]]:
        """Returns the partitions that the leader has assigned to this member."""
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=identity.generation,
            member_id=identity.member_id,
            group_instance_id=identity.instance_id,
            protocol_type=_PROTOCOL_TYPE,
            protocol_name=protocol,
            assignments=tuple(
                SyncGroupRequestAssignment(member_id=member_id, assignment=self._assignment(partitions))
                for member_id, partitions in assignments.items()
            ),
        )
        response = await self._client.try_request(request)
        if response is None or response.error_code != ErrorCode.none or not response.assignment:
            return error_of(response), ()
        assignment = entity_reader(ConsumerProtocolAssignment)(response.assignment, _INT16.size)[0]
        return ErrorCode.none, tuple(
            index for topic in assignment.assigned_partitions for index in topic.partitions
        )

    async def heartbeat(self, identity: Identity) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=self.group_id,
            generation_id=identity.generation,
            member_id=identity.member_id,
            group_instance_id=identity.instance_id,
        )
        return error_of(await self._client.try_request(request))

    async def leave(self, member_id: str) -> None:
        await self._client.try_request(
            LeaveGroupRequest(group_id=self.group_id, members=(MemberIdentity(member_id=member_id),))
        )

    def _assignment(self, partitions: list[int]) -> bytes:
        assigned = AssignedPartitions(topic=self._topic.name, partitions=tuple(partitions))
        return _encode_versioned(
            ConsumerProtocolAssignment(assigned_partitions=(assigned,) if partitions else ())
        )

    # The consumer protocol

    async def consumer_heartbeat(
        self, identity: Identity, timeouts: Timeouts | None, owned: list[int] | None
    ) -> ConsumerGroupHeartbeatResponse | None:
        """None if there is no response. With `timeouts` it is a full heartbeat, as the first and after an error."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=identity.member_id,
            member_epoch=identity.generation,
            instance_id=identity.instance_id,
            rebalance_timeout=timedelta(milliseconds=-1 if timeouts is None else timeouts.rebalance * 1000),
            subscribed_topic_names=None if timeouts is None else (self._topic.name,),
            topic_partitions=None
            if owned is None
            else (TopicPartitions(topic_id=self._topic.topic_id, partitions=tuple(owned)),)
            if owned
            else (),
        )
        response: ConsumerGroupHeartbeatResponse | None = await self._client.try_request(request)
        return response

    # Offsets

    async def commit(
        self, identity: Identity, partition: int, offset: int, metadata: str, leader_epoch: int = -1
    ) -> ErrorCode:
        """`leader_epoch` is that of the record before the offset (KIP-320)."""
        committed = OffsetCommitRequestPartition(
            partition_index=partition,
            committed_offset=offset,
            committed_leader_epoch=leader_epoch,
            committed_metadata=metadata,
        )
        request = OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=identity.generation,
            member_id=identity.member_id,
            group_instance_id=identity.instance_id,
            topics=(OffsetCommitRequestTopic(name=self._topic.name, partitions=(committed,)),),
        )
        response = await self._client.try_request(request)
        return error_of(response.topics[0].partitions[0] if response is not None else None)

    async def committed(
        self, partitions: list[int], identity: Identity | None = None
    ) -> tuple[ErrorCode, list[Committed]]:
        group = OffsetFetchRequestGroup(
            group_id=self.group_id,
            member_id=None if identity is None else identity.member_id,
            member_epoch=-1 if identity is None else identity.generation,
            topics=(OffsetFetchRequestTopics(name=self._topic.name, partition_indexes=tuple(partitions)),),
        )
        response = await self._client.try_request(OffsetFetchRequest(groups=(group,), require_stable=True))
        if response is None or response.groups[0].error_code != ErrorCode.none:
            return error_of(response.groups[0] if response is not None else None), []
        return ErrorCode.none, [
            Committed(
                found.partition_index,
                found.committed_offset,
                found.metadata or "",
                found.error_code,
                found.committed_leader_epoch,
            )
            for found in response.groups[0].topics[0].partitions
        ]

    # Describing the group

    async def describe(self) -> tuple[str, int]:
        """Returns the state ("" if the group does not exist) and the number of members, for either protocol."""
        for request in (
            ConsumerGroupDescribeRequest(group_ids=(self.group_id,), include_authorized_operations=False),
            DescribeGroupsRequest(groups=(self.group_id,), include_authorized_operations=False),
        ):
            response = await self._client.try_request(request)
            if response is not None and response.groups[0].error_code == ErrorCode.none:
                return response.groups[0].group_state, len(response.groups[0].members)
        return "", 0


def _encode_versioned(message: Any) -> bytes:
    buffer = BytesIO(_INT16.pack(_VERSION))
    buffer.seek(0, 2)
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()
