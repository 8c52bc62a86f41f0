"""The workers of a pool: threads that take tasks from the backlog, call the handler, and see to what fails."""

import logging
import threading
import time
from collections.abc import Iterable, Sequence

from ottla.model.ids import TopicPartition
from ottla.workers.backlog import Backlog, Task
from ottla.workers.dead_letters import DeadLetters
from ottla.workers.errors import HandlerError, WorkerStartError
from ottla.workers.processes import WorkerProcess
from ottla.workers.record import Handler, Record
from ottla.workers.retry import Retry

logger = logging.getLogger("ottla.workers")


class Crew:
    """Everything here may be called from any thread. A failure that ends the pool is in `failure`."""

    def __init__(self, backlog: Backlog, retry: Retry, dead_letters: DeadLetters | None) -> None:
        self._backlog = backlog
        self._retry = retry
        self._dead_letters = dead_letters
        self._threads: list[threading.Thread] = []
        self._processes: list[WorkerProcess] = []
        self.failure: BaseException | None = None
        # One lock over the backlog; workers wait for tasks, the polling thread waits for tasks to be done.
        self._lock = threading.Lock()
        self._task_is_there = threading.Condition(self._lock)
        self._task_is_done = threading.Condition(self._lock)
        self._is_closed = False

    def start(self, handler: Handler, workers: int, *, processes: bool) -> None:
        """Returns when all can work; raises WorkerStartError where a process cannot."""
        if processes:
            # First all, then wait: they come up side by side.
            self._processes = [WorkerProcess(handler) for _ in range(workers)]
            for process in self._processes:
                process.wait_until_ready()
        for n in range(workers):
            call = self._processes[n] if processes else handler
            thread = threading.Thread(target=self._work, args=(call,), name=f"worker-{n}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        with self._lock:
            self._backlog.assign(partitions)

    def add(self, records: Sequence[Record]) -> None:
        with self._lock:
            added = sum(map(self._backlog.add, records))
            self._task_is_there.notify(added)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """The partitions are gone: what waits is dropped, what is with a worker no longer counts."""
        with self._lock:
            self._backlog.forget(partitions)

    def drain(self, partitions: Sequence[TopicPartition], timeout_s: float) -> None:
        """Gives the workers time to finish what they have begun of these partitions; drops what they have not."""
        with self._lock:
            self._backlog.leave_unbegun(partitions)
            if not self._task_is_done.wait_for(lambda: self._backlog.is_drained(partitions), timeout_s):
                logger.warning(
                    "records of %s are still with their handlers after %g s; their offsets are not committed, so "
                    "the next owner of the partition handles them again",
                    *(", ".join(map(str, partitions)), timeout_s),
                )

    def committable(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        with self._lock:
            return self._backlog.committable(partitions)

    def partitions(self) -> list[TopicPartition]:
        with self._lock:
            return self._backlog.partitions

    def paused(self) -> list[TopicPartition]:
        with self._lock:
            return self._backlog.paused

    def wait_for_room(self, timeout_s: float) -> int:
        """How many more records may be read; 0 where none were done with in time."""
        with self._lock:
            self._task_is_done.wait_for(lambda: self._backlog.room or self.failure, timeout_s)
            return self._backlog.room

    def change_pauses(self) -> tuple[list[TopicPartition], list[TopicPartition]]:
        with self._lock:
            return self._backlog.change_pauses()

    def close(self, timeout_s: float) -> None:
        """Ends the workers. One whose handler does not return in time is left behind; a process is killed."""
        with self._lock:
            self._is_closed = True
            self._task_is_there.notify_all()
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        left = [thread.name for thread in self._threads if thread.is_alive()]
        if left:
            logger.warning(
                "%s did not end within %g s: a handler does not return", ", ".join(left), timeout_s
            )
        for thread, process in zip(self._threads, self._processes, strict=False):
            if thread.is_alive():
                # Its thread is told by that, and only then is done with the connection.
                process.kill()
                thread.join()
        for process in self._processes:
            process.close()

    def _work(self, call: Handler) -> None:
        """The life of a worker thread. It ends when the crew is closed, and never without a word before."""
        try:
            self._work_until_closed(call)
        except BaseException as error:
            with self._lock:
                self._fail(error)

    def _work_until_closed(self, call: Handler) -> None:
        while (task := self._next_task()) is not None:
            try:
                call(task.record)
            except WorkerStartError as error:
                self._give_up(task, error)
            except BaseException as error:
                # Also SystemExit: a worker that ended in silence would leave its record unfinished for ever.
                self._on_failed(task, error)
            else:
                self._on_done(task)

    def _next_task(self) -> Task | None:
        with self._lock:
            while not self._is_closed:
                now = time.monotonic()
                task = self._backlog.take(now)
                if task is not None:
                    return task
                due = self._backlog.next_due()
                self._task_is_there.wait(None if due is None else max(0.0, due - now))
            return None

    def _on_done(self, task: Task) -> None:
        with self._lock:
            self._backlog.finish(task)
            self._task_is_done.notify_all()

    def _on_failed(self, task: Task, error: BaseException) -> None:
        task.failed_attempts += 1
        delay_s = self._retry.delay_s(task.failed_attempts)
        with self._lock:
            if self._backlog.is_stale(task):
                # The partition has another owner by now, who has the record too.
                logger.warning("record %s failed after its partition was taken away: %r", task.record, error)
                self._backlog.abandon(task)
                return
            if delay_s is not None:
                logger.warning("attempt %d at record %s failed: %r", task.failed_attempts, task.record, error)
                self._backlog.put_off(task, time.monotonic() + delay_s)
                # Those who wait for nothing in particular must now wait for this; and a pool that has failed does not
                # try it again, so to that this was the end of the task.
                self._task_is_there.notify_all()
                self._task_is_done.notify_all()
                return
        self._bury(task, error)

    def _bury(self, task: Task, error: BaseException) -> None:
        """The last attempt has failed."""
        try:
            if self._dead_letters is None:
                raise HandlerError(task.record, task.failed_attempts, error) from error
            self._dead_letters.send(task.record, error, task.failed_attempts)
        except Exception as failure:
            self._give_up(task, failure)
        else:
            self._on_done(task)

    def _give_up(self, task: Task, failure: BaseException) -> None:
        with self._lock:
            self._backlog.abandon(task)
            self._fail(failure)

    def _fail(self, failure: BaseException) -> None:
        """Ends the pool. The first failure is raised by `run()`; one that comes while it ends is only told."""
        if self.failure is None:
            self.failure = failure
        else:
            logger.error("%s", failure)
        self._backlog.halt()
        self._task_is_done.notify_all()
