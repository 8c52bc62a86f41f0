"""A node on the simulated network that answers requests as a test wants."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from struct import pack, unpack_from
from typing import NamedTuple

from kio.schema.api_versions.v3.response import ApiVersion, ApiVersionsResponse

from ottla.env.network import Listener, Stream
from ottla.model.errors import ErrorCode
from ottla.protocol.api_keys import APIS, ApiKey
from ottla.rpc.addresses import Address
from ottla.rpc.messages import encode_message
from ottla.sim.env import World


class Asked(NamedTuple):
    api_key: int
    version: int
    correlation_id: int
    body: bytes
    connection: "ServerSide"

    def respond(self, body: bytes) -> None:
        is_flexible = self.version >= APIS[ApiKey(self.api_key)].first_flexible
        tags = b"\0" if is_flexible and self.api_key != ApiKey.API_VERSIONS else b""
        frame = pack(">i", self.correlation_id) + tags + body
        self.connection.stream.send([pack(">i", len(frame)) + frame])


class ServerSide:
    """One accepted connection. Splits the bytes into requests."""

    def __init__(self, server: "NodeServer", stream: Stream) -> None:
        self.stream = stream
        self.is_closed = False
        self._server = server
        self._space = bytearray(1000)
        self._data = b""

    def buffer(self) -> memoryview:
        return memoryview(self._space)

    def received(self, count: int) -> None:
        self._data += self._space[:count]
        while len(self._data) >= 4 and len(self._data) >= 4 + unpack_from(">i", self._data)[0]:
            end = 4 + unpack_from(">i", self._data)[0]
            api_key, version, correlation_id, length = unpack_from(">hhih", self._data, 4)
            start = 14 + max(length, 0)
            if version >= APIS[ApiKey(api_key)].first_flexible:
                start += 1
            asked = Asked(api_key, version, correlation_id, self._data[start:end], self)
            self._data = self._data[end:]
            self._server.on_request(asked)

    def drained(self) -> None: ...

    def closed(self, error: OSError | None) -> None:
        self.is_closed = True


class NodeServer:
    """Keeps every request. `answer` responds to all but ApiVersions; by default with the body of the request."""

    def __init__(self, world: World, host: str) -> None:
        self.host = host
        self.requests: list[Asked] = []
        self.connections: list[ServerSide] = []
        self.api_versions = api_versions()
        self.answer: Callable[[Asked], object] = lambda asked: asked.respond(asked.body)
        self._network = world.network.host(host)
        self._listener: Listener

    async def listen(self, port: int = 0) -> Address:
        self._listener = await self._network.listen(self.host, port, self._accept)
        return Address(*self._listener.address)

    def stop_listening(self) -> None:
        self._listener.close()

    def _accept(self, stream: Stream) -> ServerSide:
        self.connections.append(ServerSide(self, stream))
        return self.connections[-1]

    def on_request(self, asked: Asked) -> None:
        self.requests.append(asked)
        if asked.api_key == ApiKey.API_VERSIONS:
            asked.respond(self.api_versions)
        else:
            self.answer(asked)

    async def until_asked(self, count: int) -> None:
        while len(self.requests) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def api_versions(error: ErrorCode = ErrorCode.none, **versions: tuple[int, int]) -> bytes:
    """A response with all versions that we know, but these of the APIs that are named."""
    offered = {key: (spec.min_version, spec.max_version) for key, spec in APIS.items()}
    offered |= {ApiKey[name]: bounds for name, bounds in versions.items()}
    unknown = ApiVersion(api_key=999, min_version=0, max_version=1)
    return encode_message(
        ApiVersionsResponse(
            error_code=error,
            api_keys=(
                *(
                    ApiVersion(api_key=int(key), min_version=low, max_version=high)
                    for key, (low, high) in offered.items()
                ),
                unknown,
            ),
            throttle_time=timedelta(),
        )
    )
