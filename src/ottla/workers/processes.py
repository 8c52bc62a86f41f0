"""A handler in a process of its own, called from here like a function: one record goes over, one answer comes back."""

import contextlib
import multiprocessing
import signal
import traceback
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from ottla.workers.errors import RemoteError, WorkerDiedError, WorkerStartError, described
from ottla.workers.record import Handler, Record

STOP_TIMEOUT_S = 5.0


class WorkerProcess:
    """Begins at once; a process that has died is replaced with the next call. For one thread, but for `kill`."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._is_ready = False
        self._process, self._connection = self._start()

    @property
    def pid(self) -> int | None:
        return self._process.pid

    def wait_until_ready(self) -> None:
        """Raises WorkerStartError where the process ends instead, mostly since it cannot import the handler."""
        if not self._is_ready:
            try:
                self._connection.recv()
            except EOFError:
                raise WorkerStartError(self._exit_code()) from None
            self._is_ready = True

    def __call__(self, record: Record) -> None:
        """Raises RemoteError for what the handler raises, WorkerDiedError where the process ends before it answers."""
        if not self._process.is_alive():
            self.close()
            self._is_ready = False
            self._process, self._connection = self._start()
        self.wait_until_ready()
        try:
            self._connection.send(record)
            failure: tuple[str, str, str] | None = self._connection.recv()
        except (EOFError, OSError):
            raise WorkerDiedError(record, self.pid, self._exit_code()) from None
        if failure is not None:
            raise RemoteError(*failure)

    def close(self) -> None:
        """The process ends when it sees that nobody will send it a record any more."""
        self._connection.close()
        self._process.join(STOP_TIMEOUT_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def kill(self) -> None:
        """From another thread; the one that waits for an answer gets WorkerDiedError."""
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
        self._process.join(STOP_TIMEOUT_S)
        return self._process.exitcode


def _serve(connection: Connection, handler: Handler) -> None:
    """The life of a worker process: it ends when the pool closes the connection, or is gone itself."""
    # Ctrl-C reaches every process of a terminal, but it is the pool's to say what becomes of records under way.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        connection.send("ready")
        while True:
            connection.send(_failure_of(handler, connection.recv()))


def _failure_of(handler: Handler, record: Record) -> tuple[str, str, str] | None:
    try:
        handler(record)
    except BaseException as error:
        return (*described(error), traceback.format_exc())
    return None
