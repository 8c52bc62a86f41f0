"""An event loop with virtual time: when nothing is ready, it advances its clock to the next timer.

It has no sockets and no threads, so a run depends on nothing but its inputs. Tasks and futures hash by their number,
not by their address, so that asyncio's sets have the same order in every run.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, ContextVar
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")

STEP_LIMIT = 20_000_000
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


class _VirtualSelector:
    """Takes the place of the loop's selector: instead of waiting, it advances the virtual time."""

    def __init__(self, loop: "VirtualTimeLoop") -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[object]:
        self._loop.step(timeout)
        return []


class VirtualTimeLoop(asyncio.BaseEventLoop):
    _scheduled: list[asyncio.TimerHandle]

    def __init__(self, step_limit: int = STEP_LIMIT) -> None:
        super().__init__()
        self._selector = _VirtualSelector(self)
        self._clock_resolution = 1e-9
        self._now = 0.0
        self._steps_left = step_limit
        self._step_limit = step_limit
        self._numbers = 0
        self._tasks: dict[int, _NumberedTask[Any]] = {}
        self._dead: set[str] = set()
        self.failures: list[str] = []
        self.set_task_factory(_make_task)
        self.set_exception_handler(_note_failure)

    def time(self) -> float:
        return self._now

    def step(self, timeout: float | None) -> None:
        """One turn of the loop. `timeout` is the time until the next timer; None if there is no timer."""
        self._steps_left -= 1
        if self._steps_left < 0:
            raise StepLimitReached(
                f"{self._step_limit} turns of the event loop were not enough; now at {self._now:.3f} s. "
                f"Waiting: {self._pending()}"
            )
        if timeout is None:
            raise Deadlock(
                f"at {self._now:.3f} s nothing is ready and no timer is set. Waiting: {self._pending()}"
            )
        self._now += timeout

    @property
    def turn(self) -> int:
        """The number of turns so far."""
        return self._step_limit - self._steps_left

    def kill(self, node: str) -> list[asyncio.Task[Any]]:
        """Cancels the tasks and timers of `node`. Returns the tasks, so that the caller can await them."""
        self._dead.add(node)
        tasks: list[asyncio.Task[Any]] = [task for task in self._tasks.values() if task.node == node]
        for handle in list(self._scheduled):
            if _node_of(handle) == node:
                handle.cancel()
        for task in tasks:
            task.cancel()
        return tasks

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

    def _process_events(self, events: list[object]) -> None:
        """`_VirtualSelector` never reports an event."""

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
