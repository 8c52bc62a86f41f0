"""A connection to a broker on a blocking socket, for programs that have nothing else to do meanwhile."""

import socket
from collections.abc import Callable
from types import TracebackType

from ottla.protocol.api_keys import ApiKey
from ottla.rpc.addresses import Address
from ottla.rpc.client_protocol import ClientProtocol, Response, ResponseError


class BlockingConnection:
    """Every method raises OSError when the connection fails, or makes no progress for `timeout_s`."""

    def __init__(
        self,
        address: Address,
        client_id: str | None,
        timeout_s: float,
        *,
        allocate: Callable[[int], bytearray] = bytearray,
    ) -> None:
        self._protocol = ClientProtocol(client_id, allocate=allocate)
        self._socket = socket.create_connection(address, timeout=timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, api_key: ApiKey, version: int, body: bytes) -> int:
        """Sends a request without waiting for its response; returns its correlation id."""
        correlation_id, frame = self._protocol.send_request(api_key, version, body)
        self._socket.sendall(frame)
        return correlation_id

    def receive(self) -> Response:
        """Waits for the next response."""
        protocol, receive_into = self._protocol, self._socket.recv_into
        while True:
            response = protocol.received(receive_into(protocol.buffer()))
            if response is not None:
                return response

    def call(self, api_key: ApiKey, version: int, body: bytes) -> memoryview:
        """Sends a request and returns the body of its response. No other request may be in flight."""
        correlation_id = self.send(api_key, version, body)
        response = self.receive()
        if response.correlation_id != correlation_id:
            raise ResponseError(f"the response to another request ({response.correlation_id}) came")
        return response.body

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> "BlockingConnection":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
