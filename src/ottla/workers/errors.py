"""What can go wrong for a consumer, each with the record that it concerns and what to do about it."""

from ottla.workers.record import Record


class WorkersError(Exception):
    """Everything that `run()` raises of its own."""


class ConsumerError(WorkersError):
    """The consumer cannot go on: its group or a topic refuses it, or the client has failed for good."""


class HandlerError(WorkersError):
    """A handler failed for the last time, and there is no dead-letter topic. The handler's error is the cause."""

    def __init__(self, record: Record, attempts: int, error: BaseException) -> None:
        kind, text = described(error)
        super().__init__(
            f"The handler failed {attempts} times on record {record}, last with {kind}: {text}. "
            f"Its offset is not committed, so a restart begins with it again: correct the handler or the record, or "
            f"name a dead_letter_topic to put such records aside."
        )
        self.record = record
        self.attempts = attempts


class DeadLetterError(WorkersError):
    """A record that no handler could take was not accepted by the dead-letter topic either."""

    def __init__(self, record: Record, topic: str, reason: object) -> None:
        super().__init__(
            f"Record {record} failed and could not be written to the dead-letter topic {topic}: {reason}. Its offset "
            f"is not committed, so a restart begins with it again. See that the topic exists, that this client may "
            f"write to it, and that its max.message.bytes leaves room for a few headers."
        )
        self.record = record


class WorkerDiedError(WorkersError):
    """A worker process ended in the middle of a record. It counts as a failed attempt at that record."""

    def __init__(self, record: Record, pid: int | None, exit_code: int | None) -> None:
        super().__init__(
            f"Worker process {pid} {_how_it_ended(exit_code)} while it handled record {record}. "
            f"See whether the handler runs out of memory, or calls native code that crashes."
        )
        self.record = record


class WorkerStartError(WorkersError):
    """A worker process ended before it could take a record."""

    def __init__(self, exit_code: int | None) -> None:
        super().__init__(
            f"A worker process {_how_it_ended(exit_code)} before it was ready; what it wrote to stderr says why. "
            f"Worker processes import the program anew: keep the handler at the top level of a module, and what starts "
            f"the pool under `if __name__ == '__main__':`."
        )


class RemoteError(Exception):
    """What a handler raised in a worker process, in words: not every exception survives pickling."""

    def __init__(self, kind: str, text: str, traceback: str) -> None:
        super().__init__(f"{kind}: {text}\n{traceback}")
        self.kind = kind
        self.text = text


def described(error: BaseException) -> tuple[str, str]:
    """The type of an error and its text, also where it was raised in another process."""
    if isinstance(error, RemoteError):
        return error.kind, error.text
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return name, str(error)


def _how_it_ended(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        return f"was ended by signal {-exit_code}"
    return f"ended with code {exit_code}"
