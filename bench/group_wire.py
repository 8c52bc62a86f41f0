"""Groups without a client library: the load must cost the coordinator more than it costs this client."""

import asyncio
import selectors
import socket
import struct
import time
from typing import Any

from kio.schema.join_group.v5.response import JoinGroupResponse
from kio.schema.offset_commit.v9.request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kio.schema.offset_commit.v9.response import OffsetCommitResponse
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32, i64

from ottla.protocol.framing import response_prefix
from ottla.protocol.primitives import encode_string
from ottla.rpc import (
    Address,
    ApiKey,
    BlockingConnection,
    ClientProtocol,
    encode_request,
    parse_bootstrap_servers,
)
from ottla.rpc.messages import decode_message, encode_message

CLIENT_ID = "bench"
# The first request of a connection has this one.
CORRELATION_ID = 1
# COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR
NOT_READY = (14, 15, 16)
RETRY_S = 0.05
READY_TIMEOUT_S = 60
REQUEST_TIMEOUT_S = 10
# Requests under way on each connection, so that the broker never waits for the client.
WINDOW = 10
SESSION_TIMEOUT_MS = 30_000
CONNECTING_MAX = 50

Spec = dict[str, Any]


def address_of(bootstrap: str) -> Address:
    return parse_bootstrap_servers(bootstrap)[0]


def connect(bootstrap: str) -> BlockingConnection:
    return BlockingConnection(address_of(bootstrap), CLIENT_ID, REQUEST_TIMEOUT_S)


def member_identity(group: str, generation: int, member_id: str) -> bytes:
    """The body of Heartbeat v3 and the first fields of SyncGroup v3; the group instance id is null."""
    return (
        encode_string(group) + struct.pack(">i", generation) + encode_string(member_id) + encode_string(None)
    )


def error_code(body: memoryview) -> int:
    """Of a response whose first fields are throttle time and error code."""
    return int.from_bytes(body[4:6], "big", signed=True)


def wait_for_coordinator(bootstrap: str, group: str) -> None:
    """Returns when it has loaded the group's partition. The first group of a broker waits for the offsets topic."""
    deadline = time.monotonic() + READY_TIMEOUT_S
    group_key, heartbeat = encode_string(group) + b"\0", member_identity(group, 1, "nobody")
    with connect(bootstrap) as client:
        while (
            error_code(client.call(ApiKey.FIND_COORDINATOR, 2, group_key))
            or error_code(client.call(ApiKey.HEARTBEAT, 3, heartbeat)) in NOT_READY
        ):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{group} has no coordinator after {READY_TIMEOUT_S} s")
            time.sleep(RETRY_S)


# -- offset commits


def offset_commit(spec: Spec, group: str) -> bytes:
    """The body of an OffsetCommit v9 of a simple group, which has no members."""
    partitions = tuple(
        OffsetCommitRequestPartition(
            partition_index=i32(partition), committed_offset=i64(1), committed_metadata=""
        )
        for partition in range(spec["partitions"])
    )
    topic = OffsetCommitRequestTopic(name=TopicName(spec["topic"]), partitions=partitions)
    return encode_message(OffsetCommitRequest(group_id=GroupId(group), member_id="", topics=(topic,)))


def expected_response(spec: Spec, group: str, commit: bytes) -> bytes:
    """The response to a commit, with its header: equal commits get equal responses."""
    wait_for_coordinator(spec["bootstrap"], group)
    with connect(spec["bootstrap"]) as client:
        body = client.call(ApiKey.OFFSET_COMMIT, 9, commit)
    response = decode_message(OffsetCommitResponse, body)
    errors = [found.error_code for topic in response.topics for found in topic.partitions]
    if any(errors):
        raise RuntimeError(f"offsets of {group} cannot be committed: errors {errors}")
    return response_prefix(CORRELATION_ID, len(body), flexible_header=True) + body


class Committer:
    """One connection that commits for one group, again and again.

    It sends the same bytes each time and compares the responses with the first one, which costs less than decoding.
    """

    def __init__(self, spec: Spec, group: str) -> None:
        commit = offset_commit(spec, group)
        self._response = expected_response(spec, group, commit)
        self._request = encode_request(ApiKey.OFFSET_COMMIT, 9, CORRELATION_ID, CLIENT_ID, commit)
        self._received = b""
        self.count = 0
        self.socket = socket.create_connection(address_of(spec["bootstrap"]))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, count: int) -> None:
        self.socket.sendall(self._request * count)

    def receive(self) -> None:
        self._received += self.socket.recv(1 << 16)
        count = len(self._received) // len(self._response)
        end = count * len(self._response)
        if self._received[:end] != self._response * count:
            raise RuntimeError("a commit was rejected: a response differs from the first one")
        self._received = self._received[end:]
        self.count += count
        self.send(count)


def offset_commits(spec: Spec) -> dict[str, float]:
    """`connections` commit all `partitions` with each request, for `run_s` seconds."""
    committers = [Committer(spec, f"{spec['topic']}-{number}") for number in range(spec["connections"])]
    with selectors.DefaultSelector() as selector:
        for committer in committers:
            selector.register(committer.socket, selectors.EVENT_READ, committer)
        began, cpu_began = time.monotonic(), time.process_time()
        for committer in committers:
            committer.send(WINDOW)
        while time.monotonic() < began + spec["run_s"]:
            for key, _ in selector.select(timeout=1):
                key.data.receive()
        seconds, cpu_seconds = time.monotonic() - began, time.process_time() - cpu_began
    for committer in committers:
        committer.socket.close()
    count = sum(committer.count for committer in committers)
    return {"commits": count, "seconds": seconds, "cpu_seconds": cpu_seconds}


# -- many groups


class WireMember:
    """The only member of its group, in the classic protocol."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._member_id = ""
        self._generation = -1
        self._protocol = ClientProtocol(CLIENT_ID)
        self._sent_at: list[float] = []
        self.waited_s: list[float] = []
        self.in_time = 0

    async def connect(self, host: str, port: int) -> None:
        self._reader, self._writer = await asyncio.open_connection(host, port)

    async def join(self) -> None:
        """KIP-394: the first response only gives the member its id."""
        while self._generation < 0:
            self._send(ApiKey.JOIN_GROUP, 5, self._join_group())
            joined = decode_message(JoinGroupResponse, await self._receive())
            self._member_id, self._generation = joined.member_id, joined.generation_id
            await asyncio.sleep(0 if joined.member_id else RETRY_S)
        identity = member_identity(self._group, self._generation, self._member_id)
        assignment = struct.pack(">i", 1) + encode_string(self._member_id) + struct.pack(">i", 0)
        self._send(ApiKey.SYNC_GROUP, 3, identity + assignment)
        if error := error_code(await self._receive()):
            raise RuntimeError(f"{self._group} could not be synced: error {error}")

    async def send_heartbeats(self, count: int, interval_s: float, phase_s: float) -> None:
        """One each interval, without waiting for the response: a broker may delay it while nothing changes.

        At the end the member leaves the group, which makes the broker send every response that it still delays.
        """
        heartbeat = member_identity(self._group, self._generation, self._member_id)
        leave = encode_string(self._group) + encode_string(self._member_id)
        begin = time.perf_counter() + phase_s
        receiving = asyncio.create_task(self._receive_heartbeats(count, interval_s))
        for number in range(count + 1):
            await asyncio.sleep(max(0.0, begin + number * interval_s - time.perf_counter()))
            self._sent_at.append(time.perf_counter())
            if number < count:
                self._send(ApiKey.HEARTBEAT, 3, heartbeat)
            else:
                self._send(ApiKey.LEAVE_GROUP, 1, leave)
        await receiving
        await self._receive()
        self._writer.close()
        await self._writer.wait_closed()

    async def _receive_heartbeats(self, count: int, interval_s: float) -> None:
        """Waiting counts from the last request sent. A response is in time within two intervals of its request."""
        for number in range(count):
            body = await self._receive()
            now = time.perf_counter()
            self.waited_s.append(now - self._sent_at[-1])
            self.in_time += now - self._sent_at[number] < 2 * interval_s and error_code(body) == 0

    def _join_group(self) -> bytes:
        timeouts = struct.pack(">ii", SESSION_TIMEOUT_MS, SESSION_TIMEOUT_MS)
        protocols = struct.pack(">i", 1) + encode_string("none") + struct.pack(">i", 0)
        member = encode_string(self._member_id) + encode_string(None)
        return encode_string(self._group) + timeouts + member + encode_string("bench") + protocols

    def _send(self, api_key: ApiKey, version: int, body: bytes) -> None:
        _, frame = self._protocol.send_request(api_key, version, body)
        self._writer.write(frame)

    async def _receive(self) -> memoryview:
        """The body of the next response."""
        while True:
            buffer = self._protocol.buffer()
            data = await self._reader.read(len(buffer))
            buffer[: len(data)] = data
            response = self._protocol.received(len(data))
            if response is not None:
                return response.body


def many_groups(spec: Spec) -> dict[str, float]:
    """`groups` of one member each join at once, then each sends `heartbeats`, spread over the interval."""
    wait_for_coordinator(spec["bootstrap"], spec["topic"])
    return asyncio.run(_many_groups(spec))


async def _many_groups(spec: Spec) -> dict[str, float]:
    host, port = address_of(spec["bootstrap"])
    members = [WireMember(f"{spec['topic']}-{number}") for number in range(spec["groups"])]
    for first in range(0, len(members), CONNECTING_MAX):
        await asyncio.gather(*(one.connect(host, port) for one in members[first : first + CONNECTING_MAX]))
    began = time.monotonic()
    async with asyncio.timeout(READY_TIMEOUT_S):
        await asyncio.gather(*(member.join() for member in members))
    ready_s = time.monotonic() - began
    count, interval_s = spec["heartbeats"], spec["interval_s"]
    async with asyncio.timeout(count * interval_s + READY_TIMEOUT_S):
        await asyncio.gather(
            *(
                member.send_heartbeats(count, interval_s, interval_s * number / len(members))
                for number, member in enumerate(members)
            )
        )
    waited_s = sorted(waited for member in members for waited in member.waited_s)
    in_time = sum(member.in_time for member in members)
    return {
        "ready_s": ready_s,
        "p99_ms": 1_000 * waited_s[len(waited_s) * 99 // 100],
        "worst_ms": 1_000 * waited_s[-1],
        "in_time_percent": 100 * in_time / (len(members) * count),
    }
