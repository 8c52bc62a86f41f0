"""An event loop with virtual time: when nothing is ready, it advances its clock to the next timer.

It has no sockets and no threads, so a run depends on nothing but its inputs. Tasks and futures hash by their number,
not by their address, so that asyncio's sets have the same order in every run.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, ContextVar
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")

STEP_LIMIT = 20_000_000
_CANCELLED_TIMERS_MIN = 100
# The simulated process of a task or callback; "" for the simulation itself.
NODE: ContextVar[str] = ContextVar("ottla_sim_node", default="")


class SimulationError(Exception):
    """The simulated program broke a rule of the simulation, or failed in a callback or a task that nobody awaited."""


class Deadlock(SimulationError):
    """Nothing is ready and no timer is set, but the main task is not done."""


class StepLimitReached(SimulationError):
    """The program needs more turns of the event loop than any valid run."""


class _NumberedFuture(asyncio.Future[T]):
    number: int

    def __hash__(self) -> int:
        return self.number


class _NumberedTask(asyncio.Task[T]):
    number: int = 0
    node: str = ""

    def __hash__(self) -> int:
        return self.number


class VirtualTimeLoop(asyncio.BaseEventLoop):
    """It replaces the timers and the turns of asyncio's loop, which take a third of the time of a simulation."""

    _ready: deque[asyncio.Handle]
    _stopping: bool

    def __init__(self, step_limit: int = STEP_LIMIT) -> None:
        super().__init__()
        self._now = 0.0
        # A heap, ordered by time and then by number: comparing tuples is faster than comparing handles.
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._cancelled_timers = 0
        self._steps_left = step_limit
        self._step_limit = step_limit
        self._numbers = 0
        self._tasks: dict[int, _NumberedTask[Any]] = {}
        self._dead: set[str] = set()
        # The callbacks and timers of paused nodes that were due, or were added, since the pause.
        self._held: dict[str, list[asyncio.Handle]] = {}
        self.failures: list[str] = []
        self.set_task_factory(_make_task)
        self.set_exception_handler(_note_failure)

    def time(self) -> float:
        return self._now

    # Callbacks and timers

    def call_soon(  # type: ignore[override]  # the types of the arguments are not checked here
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._add_timer(timer)
        return timer

    def _add_timer(self, timer: asyncio.TimerHandle) -> None:
        timer._scheduled = True  # type: ignore[attr-defined]  # so that it reports a cancellation
        self._numbers += 1
        heapq.heappush(self._timers, (timer.when(), self._numbers, timer))

    def get_debug(self) -> bool:
        """Asked for each callback; asyncio's debug mode would make a run depend on the real time."""
        return False

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """A cancelled timer stays in the heap until its time comes, or until half of the timers are cancelled."""
        self._cancelled_timers += 1
        if self._cancelled_timers > _CANCELLED_TIMERS_MIN and 2 * self._cancelled_timers > len(self._timers):
            self._timers = [entry for entry in self._timers if not entry[2].cancelled()]
            heapq.heapify(self._timers)
            self._cancelled_timers = 0

    def _run_once(self) -> None:
        """One turn: advances the time if nothing is ready, and runs what is ready then."""
        self._steps_left -= 1
        if self._steps_left < 0:
            raise StepLimitReached(
                f"{self._step_limit} turns of the event loop were not enough; now at {self._now:.3f} s. "
                f"Waiting: {self._pending()}"
            )
        ready = self._ready
        if not ready and not self._stopping:
            self._advance()
        timers, now = self._timers, self._now
        while timers and timers[0][0] <= now:
            timer = self._pop_timer()
            if not timer._cancelled:
                ready.append(timer)
        if self._held:
            self._run_unheld(frozenset(self._held))  # a pause begins with the next turn
            return
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()

    def _run_unheld(self, held: frozenset[str]) -> None:
        ready = self._ready
        for _ in range(len(ready)):
            handle = ready.popleft()
            if (node := _node_of(handle)) in held:
                # If the node was resumed in this turn, its callbacks are in order again in the next one.
                self._held.get(node, ready).append(handle)
            elif not handle._cancelled:
                handle._run()

    def _advance(self) -> None:
        while self._timers and self._timers[0][2].cancelled():
            self._pop_timer()
        if not self._timers:
            raise Deadlock(
                f"at {self._now:.3f} s nothing is ready and no timer is set. Waiting: {self._pending()}"
            )
        self._now = max(self._now, self._timers[0][0])

    def _pop_timer(self) -> asyncio.TimerHandle:
        timer = heapq.heappop(self._timers)[2]
        timer._scheduled = False  # type: ignore[attr-defined]
        if timer._cancelled:
            self._cancelled_timers -= 1
        return timer

    @property
    def turn(self) -> int:
        """The number of turns so far."""
        return self._step_limit - self._steps_left

    def kill(self, node: str) -> list[asyncio.Task[Any]]:
        """Cancels the tasks and timers of `node`. Returns the tasks, so that the caller can await them."""
        self._dead.add(node)
        self.resume(node)  # its tasks need their turns to end
        tasks: list[asyncio.Task[Any]] = [task for task in self._tasks.values() if task.node == node]
        for _, _, timer in list(self._timers):
            if _node_of(timer) == node:
                timer.cancel()
        for task in tasks:
            task.cancel()
        return tasks

    def pause(self, node: str) -> None:
        """From the next turn on, no callback and no timer of `node` runs, until `resume`."""
        self._held.setdefault(node, [])

    def resume(self, node: str) -> None:
        """Runs what the pause has held back. Timers that are overdue fire at once, the oldest first."""
        for handle in self._held.pop(node, ()):
            if not isinstance(handle, asyncio.TimerHandle):
                self._ready.append(handle)
            elif not handle.cancelled():
                self._add_timer(handle)

    def is_paused(self, context: Context) -> bool:
        """Whether callbacks with this context are held back."""
        return context.get(NODE, "") in self._held

    def number(self) -> int:
        self._numbers += 1
        return self._numbers

    def register(self, task: _NumberedTask[Any], node: str) -> None:
        task.number = self.number()
        task.node = node
        self._tasks[task.number] = task
        task.add_done_callback(self._forget, context=Context())

    def note_failure(self, context: dict[str, Any]) -> None:
        """Records an unhandled exception, unless its node was killed."""
        source = context.get("handle") or context.get("task") or context.get("future")
        if _node_of(source) not in self._dead:
            self.failures.append(f"at {self._now:.3f} s: {context['message']}: {context.get('exception')!r}")

    def _forget(self, task: asyncio.Future[Any]) -> None:
        del self._tasks[hash(task)]

    def create_future(self) -> asyncio.Future[Any]:
        future: _NumberedFuture[Any] = _NumberedFuture(loop=self)
        future.number = self.number()
        return future

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> NoReturn:  # type: ignore[override]
        raise SimulationError(f"{func!r} asks for a thread. In a simulation, use env.threads")

    def _pending(self) -> str:
        waiting = [f"{task.get_name()} ({_where(task)})" for task in self._tasks.values() if not task.done()]
        return "; ".join(waiting[:20]) or "no task"

    def _write_to_self(self) -> None:
        """Would wake the loop from another thread; there are no other threads."""


def run(main: Coroutine[Any, Any, T], *, step_limit: int = STEP_LIMIT) -> T:
    """Runs `main` in virtual time. Raises SimulationError also if a callback or a task that nobody awaited failed."""
    with asyncio.Runner(loop_factory=lambda: VirtualTimeLoop(step_limit)) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, VirtualTimeLoop)
        result = runner.run(main)
    if loop.failures:
        raise SimulationError("\n".join(loop.failures))
    return result


def _make_task(
    loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, T] | Generator[Any, None, T], **options: Any
) -> asyncio.Future[T]:
    assert isinstance(loop, VirtualTimeLoop)
    context: Context | None = options.get("context")
    node = NODE.get() if context is None else context.get(NODE, "")
    task: _NumberedTask[T] = _NumberedTask(coro, loop=loop, **options)
    loop.register(task, node)
    return task


def _note_failure(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    assert isinstance(loop, VirtualTimeLoop)
    loop.note_failure(context)


def _node_of(source: object) -> str:
    """The node of a task or of a handle."""
    if isinstance(source, _NumberedTask):
        return source.node
    context: Context | None = getattr(source, "_context", None)
    return "" if context is None else context.get(NODE, "")


def _where(task: asyncio.Task[Any]) -> str:
    stack = task.get_stack(limit=1)
    if not stack:
        return "not started"
    return f"{stack[0].f_code.co_qualname}, line {stack[0].f_lineno}"
