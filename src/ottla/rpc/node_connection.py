"""A connection to another node on the event loop. Any number of requests may be in flight.

Every failure is an OSError: the node cannot be reached, the connection breaks, bytes come that are no response, or a
response does not come in time. As in Kafka, a late response closes the connection, so that all its calls fail and the
next one starts with a new connection. There is no pause between attempts to connect: callers back off.
"""

import asyncio
from collections.abc import Callable, Mapping

from kio.schema.api_versions.v3.request import ApiVersionsRequest
from kio.schema.api_versions.v3.response import ApiVersionsResponse

from ottla import __version__
from ottla.env.network import Network, Stream
from ottla.model.errors import ErrorCode
from ottla.protocol.api_keys import ApiKey
from ottla.rpc.addresses import Address
from ottla.rpc.client_protocol import ClientProtocol, ResponseError
from ottla.rpc.messages import decode_message, encode_message

# The lowest and highest version of each API that a node serves. APIs that this node does not know are left out.
Versions = Mapping[ApiKey, tuple[int, int]]

_KNOWN_KEYS = frozenset(ApiKey)
_API_VERSIONS_VERSION = 3  # known to every broker since Kafka 2.4


class NodeConnection:
    """Connects with the first call, and again with the first call after a failure.

    `on_lost` is called when a connection is lost that this node has not closed.
    """

    def __init__(
        self,
        network: Network,
        address: Address,
        client_id: str,
        on_lost: Callable[[], None] = lambda: None,
    ) -> None:
        self.address = address
        self._network = network
        self._client_id = client_id
        self._on_lost = on_lost
        self._link: _Link | None = None
        self._is_closed = False

    async def call(self, api_key: ApiKey, version: int, body: bytes, timeout_s: float) -> memoryview:
        """Sends a request and returns the body of its response. The timeout includes the time to connect.

        A call that is cancelled does not disturb the others: its response is dropped.
        """
        return await self._current_link().call(api_key, version, body, timeout_s)

    async def versions(self, timeout_s: float) -> Versions:
        """The APIs of the other side. It is asked once per connection."""
        link = self._current_link()
        if link.versions is None:
            request = ApiVersionsRequest(client_software_name="ottla", client_software_version=__version__)
            body = await link.call(
                ApiKey.API_VERSIONS, _API_VERSIONS_VERSION, encode_message(request), timeout_s
            )
            try:
                link.versions = _read_versions(body)
            except ResponseError as error:
                link.fail(error)
                raise
        return link.versions

    def close(self) -> None:
        """Calls in flight fail, and so do all later ones."""
        self._is_closed = True
        if self._link is not None:
            self._link.fail(ConnectionError(f"the connection to {self.address} was closed by this node"))

    def _current_link(self) -> "_Link":
        if self._is_closed:
            raise ConnectionError(f"the connection to {self.address} was closed by this node")
        if self._link is None or self._link.has_failed:
            self._link = _Link(self._network, self.address, self._client_id, self._on_lost)
        return self._link


class _Link:
    """One attempt to connect, and the connection if it succeeds. A Receiver (see ottla.env.network)."""

    def __init__(
        self, network: Network, address: Address, client_id: str, on_lost: Callable[[], None]
    ) -> None:
        self.has_failed = False
        self.versions: Versions | None = None
        self._address = address
        self._on_lost = on_lost
        self._protocol = ClientProtocol(client_id)
        self._waiting: dict[int, asyncio.Future[memoryview | OSError]] = {}
        self._unsent: list[bytes] = []  # requests that wait for the connection
        self._stream: Stream | None = None
        self._connecting = asyncio.create_task(self._connect(network), name=f"connect to {address}")

    async def call(self, api_key: ApiKey, version: int, body: bytes, timeout_s: float) -> memoryview:
        correlation_id, frame = self._protocol.send_request(api_key, version, body)
        response: asyncio.Future[memoryview | OSError] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = response
        if self._stream is None:
            self._unsent.append(frame)
        else:
            self._stream.send([frame])
        try:
            async with asyncio.timeout(timeout_s):
                result = await response
        except TimeoutError:
            error = TimeoutError(f"{self._address} has not responded to {api_key.name} in {timeout_s:g} s")
            self.fail(error)
            raise error from None
        finally:
            self._waiting.pop(correlation_id, None)
        if isinstance(result, OSError):
            raise result
        return result

    def fail(self, error: OSError) -> None:
        """Ends the connection, or the attempt, and all calls in flight."""
        if self.has_failed:
            return
        self.has_failed = True
        self._connecting.cancel()
        if self._stream is not None:
            self._stream.close()
        self._unsent.clear()
        for response in self._waiting.values():
            if not response.done():
                response.set_result(error)

    async def _connect(self, network: Network) -> None:
        try:
            stream = await network.connect(self._address.host, self._address.port, lambda stream: self)
        except OSError as error:
            self.fail(_explained(f"cannot connect to {self._address}", error))
        except Exception as error:  # such as a host name that cannot be encoded
            self.fail(ConnectionError(f"cannot connect to {self._address}: {error}"))
        else:
            self._stream = stream
            if self._unsent:
                stream.send(self._unsent)
                self._unsent = []

    # As a Receiver

    def buffer(self) -> memoryview:
        return self._protocol.buffer()

    def received(self, count: int) -> None:
        try:
            response = self._protocol.received(count)
        except ConnectionError as error:
            self.fail(_explained(f"{self._address} has sent bytes that are no response", error))
            return
        if response is not None:
            waiting = self._waiting.get(response.correlation_id)
            if waiting is not None and not waiting.done():
                waiting.set_result(response.body)

    def drained(self) -> None:
        """Not needed: callers wait for their responses before they send more."""

    def closed(self, error: OSError | None) -> None:
        if self.has_failed:
            return
        what = f"the connection to {self._address} is lost"
        self.fail(
            ConnectionError(f"{what}: the other side closed it") if error is None else _explained(what, error)
        )
        self._on_lost()


def _explained(what: str, error: OSError) -> OSError:
    """Callers distinguish a process that is down, which refuses connections, and one that does not respond."""
    kind: type[OSError] = ConnectionError
    for special in (TimeoutError, ConnectionRefusedError):
        if isinstance(error, special):
            kind = special
    return kind(f"{what}: {error.strerror or error}")


def _read_versions(body: memoryview) -> Versions:
    response = decode_message(ApiVersionsResponse, body)
    if response.error_code is not ErrorCode.none:
        raise ResponseError(f"the other side rejects ApiVersions: {response.error_code.name.upper()}")
    return {
        ApiKey(api.api_key): (api.min_version, api.max_version)
        for api in response.api_keys
        if api.api_key in _KNOWN_KEYS
    }
