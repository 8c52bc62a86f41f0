"""A handler in a process of its own: its errors come back, and a process that dies is replaced."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.consumer.fake_consumer import (
    CONFIG,
    FakeConsumer,
    FakeProducer,
    running,
    the_only,
    wait_until,
)

from ottla.consumer import ParallelConsumer, ProcessDiedError, ProcessStartError, Record, Retry
from ottla.consumer.errors import RemoteError
from ottla.consumer.handler_process import HandlerProcess
from ottla.model.ids import TopicPartition

pytestmark = pytest.mark.slow  # every test starts processes

P0 = TopicPartition("t", 0)


class UnpicklableError(Exception):
    """Cannot be unpickled: its constructor takes more than the text."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Notes:
    """A handler that writes down which process handled a record; the key says what else it does."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, record: Record) -> None:
        with self.path.open("a") as notes:
            notes.write(f"{record.offset} {os.getpid()}\n")
        if record.key == b"raise":
            raise UnpicklableError(7, "no such customer")
        if record.key == b"die":
            os.kill(os.getpid(), signal.SIGKILL)
        if record.key == b"hang":
            threading.Event().wait()
        if record.key == b"die once" and len(self.lines()) == 1:
            os._exit(9)

    def lines(self) -> list[tuple[int, int]]:
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        return [(int(offset), int(pid)) for offset, pid in map(str.split, lines)]


class UnpicklableHandler:
    """Can be pickled, but not unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (os._exit, (5,))

    def __call__(self, record: Record) -> None: ...


@pytest.fixture
def notes(tmp_path: Path) -> Notes:
    return Notes(tmp_path / "notes")


@pytest.fixture
def process(notes: Notes) -> Iterator[HandlerProcess]:
    process = HandlerProcess(notes)
    yield process
    process.close()


def record(offset: int, key: bytes | None = None) -> Record:
    return Record("t", 0, offset, key, b"value", (("h", None),), 17)


def test_the_handler_runs_in_another_process(process: HandlerProcess, notes: Notes) -> None:
    for offset in (0, 1):
        process(record(offset))
    assert notes.lines() == [(0, process.pid), (1, process.pid)]
    assert process.pid != os.getpid()


def test_the_error_of_a_handler_comes_back_as_text(process: HandlerProcess) -> None:
    with pytest.raises(RemoteError) as raised:
        process(record(0, b"raise"))
    assert raised.value.kind.endswith("test_handler_process.UnpicklableError")
    assert raised.value.text == "no such customer"
    assert "in __call__" in str(raised.value), "the traceback of the other process is there"


def test_a_process_that_dies_is_an_error_with_its_record_and_the_next_record_gets_a_new_process(
    process: HandlerProcess, notes: Notes
) -> None:
    process.wait_until_ready()
    first = process.pid
    with pytest.raises(
        ProcessDiedError, match=f"{first} was ended by signal 9 while it handled record t-0@3"
    ):
        process(record(3, b"die"))
    process(record(4))
    assert notes.lines() == [(3, first), (4, process.pid)]
    assert process.pid != first


def test_a_process_that_died_between_two_records_is_replaced_without_an_error(
    process: HandlerProcess, notes: Notes
) -> None:
    process.wait_until_ready()
    assert process.pid is not None
    first = process.pid
    os.kill(first, signal.SIGKILL)
    os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
    process(record(0))
    assert notes.lines() == [(0, process.pid)]


def test_a_process_that_cannot_import_its_handler_is_an_error_before_anything_is_read(
    consumers: list[FakeConsumer],
) -> None:
    parallel = ParallelConsumer(CONFIG, ["t"], UnpicklableHandler(), concurrency=1, processes=True)
    with pytest.raises(ProcessStartError, match=r"ended with code 5 before it was ready.*__main__"):
        parallel.run()
    assert consumers == []


def test_the_record_of_a_process_that_died_is_tried_again_in_another(
    consumers: list[FakeConsumer], notes: Notes
) -> None:
    parallel = ParallelConsumer(CONFIG, ["t"], notes, concurrency=1, processes=True, commit_interval_s=0.01)
    with running(parallel):
        consumer = the_only(consumers)
        consumer.deliver(0, key=b"die once")
        wait_until(lambda: consumer.last_committed() == {P0: 1})
    (first, first_pid), (second, second_pid) = notes.lines()
    assert first == second == 0
    assert first_pid != second_pid


def test_a_process_whose_handler_never_returns_is_killed_at_the_stop(
    consumers: list[FakeConsumer], notes: Notes, caplog: pytest.LogCaptureFixture
) -> None:
    parallel = ParallelConsumer(CONFIG, ["t"], notes, concurrency=1, processes=True, drain_timeout_s=0.1)
    with running(parallel) as run:
        the_only(consumers).deliver(0, key=b"hang")
        wait_until(notes.lines)
    assert run.error is None
    assert consumers[0].last_committed() == {}
    assert "a handler does not return" in caplog.text
    ((_, pid),) = notes.lines()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_record_that_kills_every_process_goes_to_the_dead_letter_topic(
    consumers: list[FakeConsumer], producers: list[FakeProducer], notes: Notes
) -> None:
    parallel = ParallelConsumer(
        CONFIG, ["t"], notes, concurrency=1, processes=True, commit_interval_s=0.01,
        retry=Retry(2, backoff_s=0.0), dead_letter_topic="t.dead",
    )  # fmt: skip
    with running(parallel):
        consumer = the_only(consumers)
        consumer.deliver(0, key=b"die")
        consumer.deliver(1)
        wait_until(lambda: consumer.last_committed() == {P0: 2})
    ((_, value, _, headers),) = producers[0].sent
    assert value == b"0"
    assert dict(headers)["dead-letter.error.type"] == b"ottla.consumer.errors.ProcessDiedError"
    assert b"was ended by signal 9 while it handled record t-0@0" in (
        dict(headers)["dead-letter.error.text"] or b""
    )
