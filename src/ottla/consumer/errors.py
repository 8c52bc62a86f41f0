"""The errors that `run()` raises, each with the record that it concerns and what to do about it."""

from ottla.consumer.record import Record


class ConsumerError(Exception):
    """The base of all errors of this package."""


class FatalClientError(ConsumerError):
    """The client cannot continue: the broker rejects it for its group or a topic, or the error is fatal."""


class HandlerError(ConsumerError):
    """A handler failed for the last time, and there is no dead-letter topic. The handler's error is the cause."""

    def __init__(self, record: Record, attempts: int, error: BaseException) -> None:
        kind, text = describe_error(error)
        super().__init__(
            f"The handler failed {attempts} times on record {record}, last with {kind}: {text}. "
            f"Its offset is not committed, so a restart begins with it again: fix the handler or the record, or "
            f"set a dead_letter_topic to put such records aside."
        )
        self.record = record
        self.attempts = attempts


class DeadLetterError(ConsumerError):
    """A record that the handler failed on could not be written to the dead-letter topic either."""

    def __init__(self, record: Record, topic: str, reason: object) -> None:
        super().__init__(
            f"Record {record} failed and could not be written to the dead-letter topic {topic}: {reason}. Its offset "
            f"is not committed, so a restart begins with it again. Check that the topic exists, that this client may "
            f"write to it, and that its max.message.bytes leaves room for a few headers."
        )
        self.record = record


class ProcessDiedError(ConsumerError):
    """A handler process ended in the middle of a record. It counts as a failed attempt at that record."""

    def __init__(self, record: Record, pid: int | None, exit_code: int | None) -> None:
        super().__init__(
            f"Handler process {pid} {_how_it_ended(exit_code)} while it handled record {record}. "
            f"Check whether the handler runs out of memory, or calls native code that crashes."
        )
        self.record = record


class ProcessStartError(ConsumerError):
    """A handler process ended before it could take a record."""

    def __init__(self, exit_code: int | None) -> None:
        super().__init__(
            f"A handler process {_how_it_ended(exit_code)} before it was ready; see what it wrote to stderr. "
            f"Handler processes import the program again: keep the handler at the top level of a module, and start "
            f"the consumer under `if __name__ == '__main__':`."
        )


class RemoteError(Exception):
    """An error that the handler raised in another process, as text: not every exception can be pickled."""

    def __init__(self, kind: str, text: str, traceback: str) -> None:
        super().__init__(f"{kind}: {text}\n{traceback}")
        self.kind = kind
        self.text = text


def describe_error(error: BaseException) -> tuple[str, str]:
    """The type of an error and its text, also if it was raised in another process."""
    if isinstance(error, RemoteError):
        return error.kind, error.text
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return name, str(error)


def _how_it_ended(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        return f"was ended by signal {-exit_code}"
    return f"ended with code {exit_code}"
