"""Groups without a client library, as bytes on sockets: what loads the coordinator must not load the client more."""

import asyncio
import io
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
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32, i64
from tests.interop.wire import WireClient, address_of, frame, request, string

OFFSET_COMMIT, FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = 8, 10, 11, 12, 13, 14
# COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR
NOT_YET = (14, 15, 16)
NO_STRING = struct.pack(">h", -1)
RETRY_S = 0.05
READY_TIMEOUT_S = 60
# Requests under way on each connection, so that the broker never waits for the client.
WINDOW = 10
SESSION_TIMEOUT_MS = 30_000
CONNECTING_MAX = 50

Spec = dict[str, Any]


def find_coordinator(group: str) -> bytes:
    return request(FIND_COORDINATOR, 2, string(group) + b"\0")


def heartbeat(group: str, generation: int, member_id: str) -> bytes:
    return request(HEARTBEAT, 3, member_identity(group, generation, member_id))


def member_identity(group: str, generation: int, member_id: str) -> bytes:
    """What Heartbeat v3 and SyncGroup v3 open with."""
    return string(group) + struct.pack(">i", generation) + string(member_id) + NO_STRING


def error_code(response: bytes) -> int:
    """Of a response that opens with throttle time and error code."""
    return int.from_bytes(response[8:10], "big", signed=True)


def wait_for_coordinator(bootstrap: str, group: str) -> None:
    """Until it has loaded the group's partition: the first group of a broker waits for the offsets topic to be made."""
    deadline = time.monotonic() + READY_TIMEOUT_S
    with WireClient(bootstrap) as client:
        while (
            error_code(client.ask(find_coordinator(group)))
            or error_code(client.ask(heartbeat(group, 1, "nobody"))) in NOT_YET
        ):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{group} has no coordinator after {READY_TIMEOUT_S} s")
            time.sleep(RETRY_S)


# -- offset commits


def offset_commit(spec: Spec, group: str) -> bytes:
    """OffsetCommit v9 of a simple group, which has no members."""
    partitions = tuple(
        OffsetCommitRequestPartition(
            partition_index=i32(partition), committed_offset=i64(1), committed_metadata=""
        )
        for partition in range(spec["partitions"])
    )
    topic = OffsetCommitRequestTopic(name=TopicName(spec["topic"]), partitions=partitions)
    body = io.BytesIO()
    message = OffsetCommitRequest(group_id=GroupId(group), member_id="", topics=(topic,))
    entity_writer(OffsetCommitRequest)(body, message)
    return request(OFFSET_COMMIT, 9, body.getvalue(), flexible=True)


def accepted_answer(spec: Spec, group: str, commit: bytes) -> bytes:
    """The answer to a commit: as all ask the same, all are answered the same."""
    wait_for_coordinator(spec["bootstrap"], group)
    with WireClient(spec["bootstrap"]) as client:
        answer = client.ask(commit)
    response, _ = entity_reader(OffsetCommitResponse)(answer, 5)
    errors = [found.error_code for topic in response.topics for found in topic.partitions]
    if any(errors):
        raise RuntimeError(f"offsets of {group} cannot be committed: errors {errors}")
    return frame(answer)


class Committer:
    """One connection that commits for one group, again and again."""

    def __init__(self, spec: Spec, group: str) -> None:
        self._commit = offset_commit(spec, group)
        self._answer = accepted_answer(spec, group, self._commit)
        self._received = b""
        self.count = 0
        self.socket = socket.create_connection(address_of(spec["bootstrap"]))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, count: int) -> None:
        self.socket.sendall(self._commit * count)

    def receive(self) -> None:
        self._received += self.socket.recv(1 << 16)
        answered = len(self._received) // len(self._answer)
        end = answered * len(self._answer)
        if self._received[:end] != self._answer * answered:
            raise RuntimeError("a commit was refused: an answer differs from the first one")
        self._received = self._received[end:]
        self.count += answered
        self.send(answered)


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
        self._sent_at: list[float] = []
        self.waited_s: list[float] = []
        self.in_time = 0

    async def connect(self, host: str, port: int) -> None:
        self._reader, self._writer = await asyncio.open_connection(host, port)

    async def join(self) -> None:
        """KIP-394: the first answer only gives the member its id."""
        while self._generation < 0:
            self._writer.write(self._join_group())
            joined, _ = entity_reader(JoinGroupResponse)(await self._receive(), 4)
            self._member_id, self._generation = joined.member_id, joined.generation_id
            await asyncio.sleep(0 if joined.member_id else RETRY_S)
        identity = member_identity(self._group, self._generation, self._member_id)
        assignment = struct.pack(">i", 1) + string(self._member_id) + struct.pack(">i", 0)
        self._writer.write(request(SYNC_GROUP, 3, identity + assignment))
        if error := error_code(await self._receive()):
            raise RuntimeError(f"{self._group} could not be synced: error {error}")

    async def send_heartbeats(self, count: int, interval_s: float, phase_s: float) -> None:
        """By the clock, whether the one before is answered or not: a broker may hold back an answer without news while
        the member asks for nothing else. Leaving the group, at last, asks for what is still held.
        """
        data = heartbeat(self._group, self._generation, self._member_id)
        leave = request(LEAVE_GROUP, 1, string(self._group) + string(self._member_id))
        begin = time.perf_counter() + phase_s
        receiving = asyncio.create_task(self._receive_heartbeats(count, interval_s))
        for number in range(count + 1):
            await asyncio.sleep(max(0.0, begin + number * interval_s - time.perf_counter()))
            self._sent_at.append(time.perf_counter())
            self._writer.write(data if number < count else leave)
        await receiving
        await self._receive()
        self._writer.close()
        await self._writer.wait_closed()

    async def _receive_heartbeats(self, count: int, interval_s: float) -> None:
        """Waiting counts from the last request sent. In time is what leaves no more than one heartbeat unanswered."""
        for number in range(count):
            answer = await self._receive()
            now = time.perf_counter()
            self.waited_s.append(now - self._sent_at[-1])
            self.in_time += now - self._sent_at[number] < 2 * interval_s and error_code(answer) == 0

    def _join_group(self) -> bytes:
        timeouts = struct.pack(">ii", SESSION_TIMEOUT_MS, SESSION_TIMEOUT_MS)
        protocols = struct.pack(">i", 1) + string("none") + struct.pack(">i", 0)
        member = string(self._member_id) + NO_STRING
        return request(JOIN_GROUP, 5, string(self._group) + timeouts + member + string("bench") + protocols)

    async def _receive(self) -> bytes:
        (length,) = struct.unpack(">i", await self._reader.readexactly(4))
        return await self._reader.readexactly(length)


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
