"""Listeners on the real network: options, pauses, and a lack of file descriptors."""

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable

import pytest

from ottla.env.network import DEFAULT_OPTIONS, Listener, Receiver, SocketOptions, Stream
from ottla.env.real_network import RealNetwork, SocketListener


class SilentReceiver:
    def buffer(self) -> memoryview:
        return memoryview(bytearray(100))

    def received(self, count: int) -> None: ...

    def drained(self) -> None: ...

    def closed(self, error: OSError | None) -> None: ...


class Accepted(list[Stream]):
    def __call__(self, stream: Stream) -> Receiver:
        self.append(stream)
        return SilentReceiver()


def on_listener(
    test: Callable[[Listener, Accepted], Awaitable[None]], options: SocketOptions = DEFAULT_OPTIONS
) -> None:
    async def main() -> None:
        accepted = Accepted()
        listener = await RealNetwork().listen("127.0.0.1", 0, accepted, options)
        try:
            async with asyncio.timeout(30):
                await test(listener, accepted)
        finally:
            for stream in accepted:
                stream.close()
            listener.close()

    asyncio.run(main())


async def connect(listener: Listener) -> socket.socket:
    sock = socket.socket()
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, listener.address)
    return sock


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.001)


def buffer_bytes(stream: Stream, option: int) -> int:
    sock: socket.socket = stream._sock  # type: ignore[attr-defined]
    return sock.getsockopt(socket.SOL_SOCKET, option)


def test_accepted_connections_have_the_configured_buffer_sizes() -> None:
    async def test(listener: Listener, accepted: Accepted) -> None:
        with await connect(listener):
            await until(lambda: len(accepted) == 1)
            # Linux doubles the value, to have room for its own bookkeeping.
            assert buffer_bytes(accepted[0], socket.SO_SNDBUF) in (20_000, 40_000)
            assert buffer_bytes(accepted[0], socket.SO_RCVBUF) in (30_000, 60_000)

    on_listener(test, SocketOptions(send_buffer_bytes=20_000, receive_buffer_bytes=30_000))


def test_the_listener_has_the_configured_backlog(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    listen = socket.socket.listen
    monkeypatch.setattr(
        socket.socket, "listen", lambda sock, backlog: (asked.append(backlog), listen(sock, backlog))
    )

    async def test(listener: Listener, accepted: Accepted) -> None:
        assert asked == [7]

    on_listener(test, SocketOptions(backlog=7))


def test_connections_to_a_paused_listener_are_accepted_when_it_resumes() -> None:
    async def test(listener: Listener, accepted: Accepted) -> None:
        listener.pause()
        with await connect(listener), await connect(listener):
            await asyncio.sleep(0.05)
            assert not accepted
            listener.resume()
            await until(lambda: len(accepted) == 2)

    on_listener(test)


def test_a_listener_that_runs_out_of_descriptors_waits_and_retries(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    attempts: list[int] = []
    accept = socket.socket.accept

    def fail_at_first(sock: socket.socket) -> tuple[socket.socket, object]:
        attempts.append(1)
        if len(attempts) == 1:
            raise OSError(errno.EMFILE, "Too many open files")
        return accept(sock)

    monkeypatch.setattr(socket.socket, "accept", fail_at_first)

    async def test(listener: Listener, accepted: Accepted) -> None:
        assert isinstance(listener, SocketListener)
        with await connect(listener):
            await until(lambda: len(attempts) == 1)
            await asyncio.sleep(0.1)
            assert len(attempts) == 1  # the socket stays readable, and the loop must not be busy with it
            await until(lambda: len(accepted) == 1)

    on_listener(test)
    assert "Close some connections, or raise the limit of open files (ulimit -n)" in caplog.text
