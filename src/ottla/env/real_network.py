"""TCP on the event loop's readiness callbacks, with sendfile for file regions.

It does not use asyncio's transports: a transport cannot mix its writes with `os.sendfile`, and `recv_into` a buffer
of the receiver saves one copy of every produced byte.
"""

import asyncio
import errno
import logging
import os
import socket
from collections import deque
from collections.abc import Sequence

from ottla.env.network import (
    DEFAULT_OPTIONS,
    Binding,
    Listener,
    Part,
    Receiver,
    ReceiverFactory,
    SocketOptions,
    Stream,
)
from ottla.model.region import FileRegion

logger = logging.getLogger("ottla.network")

_ACCEPT_BATCH = 64
# Errors of a system call that ran out of descriptors or memory. A later call may succeed.
_OUT_OF_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_ACCEPT_RETRY_S = 0.5
_MAX_BUFFERS = 512  # below the kernel's IOV_MAX
# For fewer bytes, a read and a copy cost less than a separate system call (measured with 200 small partitions).
_SENDFILE_MIN_BYTES = 32 * 1024


class SocketStream:
    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._loop = loop
        self._sock = sock
        self._fd = sock.fileno()
        self._backlog: deque[Part] = deque()
        self._reading = False
        self._writing = False
        self._closed = False
        self.sent_bytes = 0
        self._peer = _format_address(sock.getpeername())
        self._local: tuple[str, int] = sock.getsockname()[:2]
        self._receiver: Receiver

    def attach(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self.resume_reading()

    @property
    def peer(self) -> str:
        return self._peer

    @property
    def local_address(self) -> tuple[str, int]:
        return self._local

    def send(self, parts: Sequence[Part]) -> bool:
        if self._closed:
            return True
        if self._backlog:
            self._backlog.extend(parts)
            return False
        if len(parts) == 1 and isinstance(parts[0], bytes):  # one small response: one system call
            try:
                sent = self._sock.send(parts[0])
            except BlockingIOError:
                sent = 0
            except OSError as error:
                self._fail(error)
                return True
            self.sent_bytes += sent
            if sent == len(parts[0]):
                return True
            self._backlog.append(memoryview(parts[0])[sent:])
        else:
            self._backlog.extend(parts)
            try:
                if self._flush():
                    return True
            except OSError as error:
                self._fail(error)
                return True
        self._writing = True
        self._loop.add_writer(self._fd, self._on_writable)
        return False

    def pause_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._fd)

    def resume_reading(self) -> None:
        if not self._reading and not self._closed:
            self._reading = True
            self._loop.add_reader(self._fd, self._on_readable)

    def close(self) -> None:
        if not self._closed:
            self._shut()
            self._loop.call_soon(self._notify_closed, None)

    def _on_readable(self) -> None:
        try:
            count = self._sock.recv_into(self._receiver.buffer())
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._fail(error)
            return
        if count == 0:
            self.close()
        else:
            self._receiver.received(count)

    def _on_writable(self) -> None:
        try:
            if not self._flush():
                return
        except OSError as error:
            self._fail(error)
            return
        self._writing = False
        self._loop.remove_writer(self._fd)
        self._receiver.drained()

    def _flush(self) -> bool:
        """Sends as much as the socket accepts. Returns True if nothing is left."""
        backlog = self._backlog
        while backlog:
            try:
                first = backlog[0]
                if (
                    isinstance(first, FileRegion)
                    and first.length >= _SENDFILE_MIN_BYTES
                    and first.file.fileno() >= 0
                ):
                    self._send_region(first)
                else:
                    self._send_buffers()
            except (BlockingIOError, InterruptedError):
                return False
        return True

    def _send_region(self, region: FileRegion) -> None:
        sent = os.sendfile(self._fd, region.file.fileno(), region.position, region.length)
        if sent == 0:
            # The frame has announced the length, so the stream cannot continue.
            raise OSError(f"the file ended {region.length} bytes before the end of the region to send")
        self.sent_bytes += sent
        if sent == region.length:
            self._backlog.popleft()
        else:
            self._backlog[0] = FileRegion(region.file, region.position + sent, region.length - sent)

    def _send_buffers(self) -> None:
        """Sends the buffers at the head of the backlog, and reads small regions into buffers, up to a large region."""
        backlog = self._backlog
        buffers: list[bytes | bytearray | memoryview] = []
        more = 0
        for index, part in enumerate(backlog):
            if isinstance(part, FileRegion):
                if part.length >= _SENDFILE_MIN_BYTES and part.file.fileno() >= 0:
                    # The region follows: the kernel may fill a TCP segment with both.
                    more = getattr(socket, "MSG_MORE", 0)
                    break
                data = part.read()
                if len(data) != part.length:
                    raise OSError("the file ended before the end of the region to send")
                backlog[index] = part = data
            buffers.append(part)
            if len(buffers) == _MAX_BUFFERS:
                break
        sent = self._sock.sendmsg(buffers, [], more)
        self.sent_bytes += sent
        for buffer in buffers:
            if sent < len(buffer):
                backlog[0] = memoryview(buffer)[sent:]
                return
            sent -= len(buffer)
            backlog.popleft()

    def _fail(self, error: OSError) -> None:
        if not self._closed:
            self._shut()
            self._loop.call_soon(self._notify_closed, error)

    def _notify_closed(self, error: OSError | None) -> None:
        # The receiver refers to this stream. Without the `del`, this cycle would keep both, and the buffers of a
        # half-received request, in memory until the next garbage collection.
        receiver = self._receiver
        del self._receiver
        receiver.closed(error)

    def _shut(self) -> None:
        self.pause_reading()
        if self._writing:
            self._loop.remove_writer(self._fd)
        self._closed = True
        self._backlog.clear()
        self._sock.close()


class SocketListener:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        new_receiver: ReceiverFactory,
        options: SocketOptions,
    ) -> None:
        self._loop = loop
        self._sock = sock
        self._new_receiver = new_receiver
        self._send_buffer_bytes = options.send_buffer_bytes
        self._paused = True
        self._retry_timer: asyncio.TimerHandle | None = None
        self.resume()

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._sock.getsockname()[:2]
        return host, port

    def pause(self) -> None:
        if not self._paused:
            self._paused = True
            self._loop.remove_reader(self._sock.fileno())

    def resume(self) -> None:
        if self._paused and self._retry_timer is None:
            self._paused = False
            self._loop.add_reader(self._sock.fileno(), self._on_readable)

    def close(self) -> None:
        if self._retry_timer is not None:
            self._retry_timer.cancel()
        self.pause()
        self._sock.close()

    def _on_readable(self) -> None:
        for _ in range(_ACCEPT_BATCH):
            if self._paused:
                return
            try:
                sock, _address = self._sock.accept()
            except OSError as error:
                if error.errno in _OUT_OF_RESOURCES:
                    self._wait_for_resources(error)
                return  # no connection waits, or the client has closed it already
            try:
                if self._send_buffer_bytes is not None:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer_bytes)
                stream = SocketStream(self._loop, sock)
            except OSError:  # the client has reset the connection already
                sock.close()
                continue
            stream.attach(self._new_receiver(stream))

    def _wait_for_resources(self, error: OSError) -> None:
        """Pauses, because the listening socket stays readable and an immediate retry would loop for ever."""
        logger.error(
            "cannot accept connections: %s. Close some connections, or raise the limit of open files (ulimit -n)",
            error.strerror,
        )
        self.pause()
        self._retry_timer = self._loop.call_later(_ACCEPT_RETRY_S, self._retry)

    def _retry(self) -> None:
        self._retry_timer = None
        self.resume()


class SocketBinding:
    def __init__(self, sock: socket.socket, options: SocketOptions) -> None:
        self._sock = sock
        self._options = options

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._sock.getsockname()[:2]
        return host, port

    def listen(self, new_receiver: ReceiverFactory) -> Listener:
        self._sock.listen(self._options.backlog)
        return SocketListener(asyncio.get_running_loop(), self._sock, new_receiver, self._options)

    def close(self) -> None:
        self._sock.close()


class RealNetwork:
    @property
    def host_name(self) -> str:
        return socket.gethostname()

    async def bind(self, host: str, port: int, options: SocketOptions = DEFAULT_OPTIONS) -> Binding:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family is socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            if options.receive_buffer_bytes is not None:
                # Accepted sockets inherit it. Setting it on them is too late: the TCP window is agreed by then.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, options.receive_buffer_bytes)
            sock.bind((host, port))
            sock.setblocking(False)
            return SocketBinding(sock, options)
        except BaseException:
            sock.close()
            raise

    async def listen(
        self, host: str, port: int, new_receiver: ReceiverFactory, options: SocketOptions = DEFAULT_OPTIONS
    ) -> Listener:
        return (await self.bind(host, port, options)).listen(new_receiver)

    async def connect(self, host: str, port: int, new_receiver: ReceiverFactory) -> Stream:
        loop = asyncio.get_running_loop()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setblocking(False)
        try:
            await loop.sock_connect(sock, (host, port))
            stream = SocketStream(loop, sock)
        except BaseException:
            sock.close()
            raise
        stream.attach(new_receiver(stream))
        return stream


def _format_address(address: tuple[str, int] | tuple[str, int, int, int]) -> str:
    return f"[{address[0]}]:{address[1]}" if ":" in address[0] else f"{address[0]}:{address[1]}"
