"""Tells when the process of a node has ended, from anywhere: a connection ends with its process."""

import contextlib
import itertools
import socket
from types import TracebackType
from typing import Self

from ottla.rpc import Address, ApiKey, encode_request

_CONNECT_TIMEOUT_S = 3.0
_READ_BYTES = 64 << 10


class NodeProcess:
    """The process that serves at an address now. Raises OSError if none does."""

    def __init__(self, address: Address) -> None:
        self._correlation_ids = itertools.count()
        self._socket = socket.create_connection((address.host, address.port), timeout=_CONNECT_TIMEOUT_S)
        self._socket.setblocking(False)

    def has_ended(self) -> bool:
        """Call it now and then: the requests keep the connection from being idle, which a node would close.

        They also show that a host was restarted, which forgets its connections.
        """
        request = encode_request(ApiKey.API_VERSIONS, 0, next(self._correlation_ids), "ottla", b"")
        try:
            with contextlib.suppress(BlockingIOError):
                while self._socket.recv(_READ_BYTES):
                    pass
                return True
            with contextlib.suppress(BlockingIOError):
                self._socket.send(request)
        except OSError:
            return True
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()
