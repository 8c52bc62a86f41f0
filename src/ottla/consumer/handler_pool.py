"""The threads that call the handler, each perhaps with a process for it; retries and dead letters."""

import logging
import threading
import time
from collections.abc import Iterable, Sequence

from ottla.consumer.dead_letters import DeadLetters
from ottla.consumer.errors import HandlerError, ProcessStartError
from ottla.consumer.handler_process import HandlerProcess
from ottla.consumer.in_flight import InFlightRecords, Task
from ottla.consumer.record import Handler, Record
from ottla.consumer.retry import Retry
from ottla.model.ids import TopicPartition

_logger = logging.getLogger("ottla.consumer")


class HandlerPool:
    """Safe to use from several threads. `error` is the first error that ends the consumer."""

    def __init__(self, records: InFlightRecords, retry: Retry, dead_letters: DeadLetters | None) -> None:
        self._records = records
        self._retry = retry
        self._dead_letters = dead_letters
        self._threads: list[threading.Thread] = []
        self._processes: list[HandlerProcess] = []
        self.error: BaseException | None = None
        # One lock for the records. Handler threads wait for tasks, the polling thread waits for tasks to end.
        self._lock = threading.Lock()
        self._task_is_ready = threading.Condition(self._lock)
        self._task_has_ended = threading.Condition(self._lock)
        self._is_closed = False

    def start(self, handler: Handler, concurrency: int, *, processes: bool) -> None:
        """Returns when every thread or process is ready. Raises ProcessStartError if a process is not."""
        if processes:
            # Start all before waiting for the first: they start in parallel.
            self._processes = [HandlerProcess(handler) for _ in range(concurrency)]
            for process in self._processes:
                process.wait_until_ready()
        for n in range(concurrency):
            call = self._processes[n] if processes else handler
            thread = threading.Thread(target=self._run, args=(call,), name=f"handler-{n}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        with self._lock:
            self._records.assign(partitions)

    def add(self, records: Sequence[Record]) -> None:
        with self._lock:
            added = sum(map(self._records.add, records))
            self._task_is_ready.notify(added)

    def unassign(self, partitions: Iterable[TopicPartition]) -> None:
        """Drops the waiting records of these partitions, and ignores the results of those being handled."""
        with self._lock:
            self._records.unassign(partitions)

    def drain(self, partitions: Sequence[TopicPartition], timeout_s: float) -> None:
        """Waits until the records of these partitions that handlers have taken are handled; drops the others."""
        with self._lock:
            self._records.drop_waiting(partitions)
            if not self._task_has_ended.wait_for(lambda: self._records.is_drained(partitions), timeout_s):
                _logger.warning(
                    "records of %s are still with their handlers after %g s; their offsets are not committed, so "
                    "the next owner of the partition handles them again",
                    *(", ".join(map(str, partitions)), timeout_s),
                )

    def committable(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        with self._lock:
            return self._records.committable(partitions)

    def partitions(self) -> list[TopicPartition]:
        with self._lock:
            return self._records.partitions

    def paused(self) -> list[TopicPartition]:
        with self._lock:
            return self._records.paused

    def wait_for_room(self, timeout_s: float) -> int:
        """How many more records may be read; 0 if none was handled in time."""
        with self._lock:
            self._task_has_ended.wait_for(lambda: self._records.room or self.error, timeout_s)
            return self._records.room

    def change_pauses(self) -> tuple[list[TopicPartition], list[TopicPartition]]:
        with self._lock:
            return self._records.change_pauses()

    def close(self, timeout_s: float) -> None:
        """Ends all threads and processes. If a handler does not return in time, its thread is left behind; a
        process is killed."""
        with self._lock:
            self._is_closed = True
            self._task_is_ready.notify_all()
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        left = [thread.name for thread in self._threads if thread.is_alive()]
        if left:
            _logger.warning(
                "%s did not end within %g s: a handler does not return", ", ".join(left), timeout_s
            )
        for thread, process in zip(self._threads, self._processes, strict=False):
            if thread.is_alive():
                # The thread reads from the process: it must end before the connection is closed.
                process.kill()
                thread.join()
        for process in self._processes:
            process.close()

    def _run(self, call: Handler) -> None:
        """A handler thread. It ends when the pool is closed; any other end is an error that ends the consumer."""
        try:
            self._handle_until_closed(call)
        except BaseException as error:
            with self._lock:
                self._fail(error)

    def _handle_until_closed(self, call: Handler) -> None:
        while (task := self._next_task()) is not None:
            try:
                call(task.record)
            except ProcessStartError as error:
                self._give_up(task, error)
            except BaseException as error:
                # Also SystemExit: if the thread ended silently, its record would stay unfinished for ever.
                self._on_failed(task, error)
            else:
                self._on_handled(task)

    def _next_task(self) -> Task | None:
        with self._lock:
            while not self._is_closed:
                now = time.monotonic()
                task = self._records.take(now)
                if task is not None:
                    return task
                due = self._records.next_due()
                self._task_is_ready.wait(None if due is None else max(0.0, due - now))
            return None

    def _on_handled(self, task: Task) -> None:
        with self._lock:
            self._records.finish(task)
            self._task_has_ended.notify_all()

    def _on_failed(self, task: Task, error: BaseException) -> None:
        task.failed_attempts += 1
        delay_s = self._retry.delay_s(task.failed_attempts)
        with self._lock:
            if self._records.is_stale(task):
                # The partition has another owner by now, who handles the record too.
                _logger.warning("record %s failed after its partition was revoked: %r", task.record, error)
                self._records.abandon(task)
                return
            if delay_s is not None:
                _logger.warning(
                    "attempt %d at record %s failed: %r", task.failed_attempts, task.record, error
                )
                self._records.postpone(task, time.monotonic() + delay_s)
                # Idle threads must now wait for the retry. After an error that ends the consumer there is no retry:
                # then the task has ended, which `drain` waits for.
                self._task_is_ready.notify_all()
                self._task_has_ended.notify_all()
                return
        self._on_failed_for_good(task, error)

    def _on_failed_for_good(self, task: Task, error: BaseException) -> None:
        try:
            if self._dead_letters is None:
                raise HandlerError(task.record, task.failed_attempts, error) from error
            self._dead_letters.send(task.record, error, task.failed_attempts)
        except Exception as reason:
            self._give_up(task, reason)
        else:
            self._on_handled(task)

    def _give_up(self, task: Task, error: BaseException) -> None:
        with self._lock:
            self._records.abandon(task)
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """Ends the consumer. `run()` raises the first error; later ones are only logged."""
        if self.error is None:
            self.error = error
        else:
            _logger.error("%s", error)
        self._records.halt()
        self._task_has_ended.notify_all()
