"""A handler in a process of its own: what it raises comes back, and its death is told."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.workers.fake_consumer import CONFIG, FakeConsumer, FakeProducer, running, the_only, wait_until

from ottla.model.ids import TopicPartition
from ottla.workers import Record, Retry, WorkerDiedError, WorkerPool, WorkerStartError
from ottla.workers.errors import RemoteError
from ottla.workers.processes import WorkerProcess

P0 = TopicPartition("t", 0)


class StubbornError(Exception):
    """Cannot be unpickled: its constructor wants more than its text."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class NoteDown:
    """Writes down which process handled a record; the key says what else it does."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, record: Record) -> None:
        with self.path.open("a") as notes:
            notes.write(f"{record.offset} {os.getpid()}\n")
        if record.key == b"raise":
            raise StubbornError(7, "no such customer")
        if record.key == b"die":
            os.kill(os.getpid(), signal.SIGKILL)
        if record.key == b"hang":
            threading.Event().wait()
        if record.key == b"die once" and len(self.lines()) == 1:
            os._exit(9)

    def lines(self) -> list[tuple[int, int]]:
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        return [(int(offset), int(pid)) for offset, pid in map(str.split, lines)]


class Unwilling:
    """Can be pickled, but not unpickled."""

    def __reduce__(self) -> object:
        return (os._exit, (5,))

    def __call__(self, record: Record) -> None: ...


@pytest.fixture
def notes(tmp_path: Path) -> NoteDown:
    return NoteDown(tmp_path / "notes")


@pytest.fixture
def process(notes: NoteDown) -> Iterator[WorkerProcess]:
    process = WorkerProcess(notes)
    yield process
    process.close()


def record(offset: int, key: bytes | None = None) -> Record:
    return Record("t", 0, offset, key, b"value", (("h", None),), 17)


def test_the_handler_runs_in_another_process(process: WorkerProcess, notes: NoteDown) -> None:
    for offset in (0, 1):
        process(record(offset))
    assert notes.lines() == [(0, process.pid), (1, process.pid)]
    assert process.pid != os.getpid()


def test_what_a_handler_raises_comes_back_in_words(process: WorkerProcess) -> None:
    with pytest.raises(RemoteError) as raised:
        process(record(0, b"raise"))
    assert raised.value.kind.endswith("test_worker_processes.StubbornError")
    assert raised.value.text == "no such customer"
    assert "in __call__" in str(raised.value), "the traceback of the other process is there"


def test_a_death_is_told_with_its_record_and_the_next_record_gets_a_new_process(
    process: WorkerProcess, notes: NoteDown
) -> None:
    process.wait_until_ready()
    first = process.pid
    with pytest.raises(WorkerDiedError, match=f"{first} was ended by signal 9 while it handled record t-0@3"):
        process(record(3, b"die"))
    process(record(4))
    assert notes.lines() == [(3, first), (4, process.pid)]
    assert process.pid != first


def test_a_process_that_died_between_two_records_is_replaced_without_a_word(
    process: WorkerProcess, notes: NoteDown
) -> None:
    process.wait_until_ready()
    assert process.pid is not None
    first = process.pid
    os.kill(first, signal.SIGKILL)
    os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
    process(record(0))
    assert notes.lines() == [(0, process.pid)]


def test_a_process_that_cannot_import_its_handler_is_told_before_anything_is_read(
    consumers: list[FakeConsumer],
) -> None:
    pool = WorkerPool(CONFIG, ["t"], Unwilling(), workers=1, processes=True)
    with pytest.raises(WorkerStartError, match=r"ended with code 5 before it was ready.*__main__"):
        pool.run()
    assert consumers == []


def test_the_record_of_a_process_that_died_is_tried_again_in_another(
    consumers: list[FakeConsumer], notes: NoteDown
) -> None:
    pool = WorkerPool(CONFIG, ["t"], notes, workers=1, processes=True, commit_interval_s=0.01)
    with running(pool):
        consumer = the_only(consumers)
        consumer.deliver(0, key=b"die once")
        wait_until(lambda: consumer.last_committed() == {P0: 1})
    (first, first_pid), (second, second_pid) = notes.lines()
    assert first == second == 0
    assert first_pid != second_pid


def test_a_process_whose_handler_never_returns_is_killed_when_the_pool_stops(
    consumers: list[FakeConsumer], notes: NoteDown, caplog: pytest.LogCaptureFixture
) -> None:
    pool = WorkerPool(CONFIG, ["t"], notes, workers=1, processes=True, drain_timeout_s=0.1)
    with running(pool) as run:
        the_only(consumers).deliver(0, key=b"hang")
        wait_until(notes.lines)
    assert run.error is None
    assert consumers[0].last_committed() == {}
    assert "a handler does not return" in caplog.text
    ((_, pid),) = notes.lines()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_record_that_kills_every_process_ends_on_the_dead_letter_topic(
    consumers: list[FakeConsumer], producers: list[FakeProducer], notes: NoteDown
) -> None:
    pool = WorkerPool(
        CONFIG, ["t"], notes, workers=1, processes=True, commit_interval_s=0.01,
        retry=Retry(2, backoff_s=0.0), dead_letter_topic="t.dead",
    )  # fmt: skip
    with running(pool):
        consumer = the_only(consumers)
        consumer.deliver(0, key=b"die")
        consumer.deliver(1)
        wait_until(lambda: consumer.last_committed() == {P0: 2})
    ((_, value, _, headers),) = producers[0].sent
    assert value == b"0"
    assert dict(headers)["dead-letter.error.type"] == b"ottla.workers.errors.WorkerDiedError"
    assert b"was ended by signal 9 while it handled record t-0@0" in (
        dict(headers)["dead-letter.error.text"] or b""
    )
