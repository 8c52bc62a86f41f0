"""A handler in a process of its own, called like a function: it sends a record over and waits for the result."""

import contextlib
import multiprocessing
import signal
import traceback
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from ottla.consumer.errors import ProcessDiedError, ProcessStartError, RemoteError, describe_error
from ottla.consumer.record import Handler, Record

_STOP_TIMEOUT_S = 5.0


class HandlerProcess:
    """Starts at once. A process that has died is replaced with the next call. For one thread, except for `kill`."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._is_ready = False
        self._process, self._connection = self._start()

    @property
    def pid(self) -> int | None:
        return self._process.pid

    def wait_until_ready(self) -> None:
        """Raises ProcessStartError if the process ends instead, most often because it cannot import the handler."""
        if not self._is_ready:
            try:
                self._connection.recv()
            except EOFError:
                raise ProcessStartError(self._exit_code()) from None
            self._is_ready = True

    def __call__(self, record: Record) -> None:
        """Raises RemoteError if the handler raises, ProcessDiedError if the process ends before it has the result."""
        if not self._process.is_alive():
            self.close()
            self._is_ready = False
            self._process, self._connection = self._start()
        self.wait_until_ready()
        try:
            self._connection.send(record)
            error: tuple[str, str, str] | None = self._connection.recv()
        except (EOFError, OSError):
            raise ProcessDiedError(record, self.pid, self._exit_code()) from None
        if error is not None:
            raise RemoteError(*error)

    def close(self) -> None:
        """Closes the connection, at which the process ends; kills it if it does not."""
        self._connection.close()
        self._process.join(_STOP_TIMEOUT_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def kill(self) -> None:
        """From another thread; the thread that waits for a result gets ProcessDiedError."""
        self._process.kill()

    def _start(self) -> tuple[BaseProcess, Connection]:
        # Not fork: threads of librdkafka, and of the program, would be missing in the child with their locks held.
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, self._handler), daemon=True)
        process.start()
        theirs.close()
        return process, ours

    def _exit_code(self) -> int | None:
        self._process.join(_STOP_TIMEOUT_S)
        return self._process.exitcode


def _serve(connection: Connection, handler: Handler) -> None:
    """Runs in the process, until the consumer closes the connection or has ended itself."""
    # Ctrl-C reaches every process of a terminal, but the consumer decides what happens to records under way.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        connection.send("ready")
        while True:
            connection.send(_handle(handler, connection.recv()))


def _handle(handler: Handler, record: Record) -> tuple[str, str, str] | None:
    """Returns the error of the handler (type, text, traceback), or None."""
    try:
        handler(record)
    except BaseException as error:
        return (*describe_error(error), traceback.format_exc())
    return None
