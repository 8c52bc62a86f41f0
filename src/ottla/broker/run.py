"""Runs a broker as a process: logging, signals, the line `ready`, the exit code."""

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from ottla.broker.logging_setup import configure_logging
from ottla.broker.node import Broker
from ottla.broker.quorum_node import ControllerNode
from ottla.env import Env
from ottla.env.loop_watch import LoopWatch
from ottla.model.config import BrokerConfig, ConfigError
from ottla.model.errors import ErrorCode, KafkaError
from ottla.storage.meta_properties import OfflineDirectoryError, UnusableDirectoryError

logger = logging.getLogger("ottla.broker")

FAILED = 1
NOT_STARTED = 2


class Setting(NamedTuple):
    """Where a broker runs, if not on uvloop and the real machine. `on_start` is called when it serves."""

    new_loop: Callable[[], asyncio.AbstractEventLoop] | None = None
    env: Env | None = None
    on_start: "Callable[[Broker | ControllerNode], None]" = lambda broker: None


def run_broker(config: BrokerConfig, ready_file: Path | None = None, setting: Setting | None = None) -> int:
    """Serves until SIGTERM or SIGINT. While it serves, `ready_file` has its address.

    Returns the exit code: 0 after a clean stop, 1 if the broker failed, 2 if it could not start.
    """
    configure_logging(config.get_str("ottla.log.format"), config.get_str("ottla.log.level"))
    _raise_open_files_limit()
    new_loop = setting.new_loop if setting is not None else None
    with asyncio.Runner(loop_factory=new_loop or _find_loop_factory()) as runner:
        return runner.run(_serve(config, ready_file, setting))


def _find_loop_factory() -> "Callable[[], asyncio.AbstractEventLoop] | None":
    try:
        import uvloop
    except ImportError:  # asyncio's own event loop works too, but is slower
        return None
    return uvloop.new_event_loop


async def _serve(config: BrokerConfig, ready_file: Path | None, setting: Setting | None = None) -> int:
    setting = setting or Setting()
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    failed: asyncio.Future[Exception] = loop.create_future()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if ready_file is not None:
        try:
            ready_file.unlink(missing_ok=True)  # that of a broker that was killed has the old address
        except OSError as error:
            return _ready_file_refused(error)
    try:
        broker = await _start_unless_stopped(config, stop, failed, setting.env)
    except Exception as error:
        if failed.done():
            print(
                f"ottla serve: the broker failed while it started: {_failure_text(failed.result())}",
                file=sys.stderr,
            )
            return FAILED
        if not isinstance(error, ConfigError | UnusableDirectoryError | KafkaError | OSError):
            raise
        where = ", ".join(str(listener) for listener in config.broker_listeners)
        reason = error.message if isinstance(error, KafkaError) else error
        print(f"ottla serve: the broker cannot start (listeners {where}): {reason}", file=sys.stderr)
        return NOT_STARTED
    if broker is None:
        logger.info("node %d was stopped before it served", config.node_id)
        return 0
    _tune_garbage_collector()
    # A thread that computes (an import, a long message) hands over to the event loop after 1 ms instead of 5.
    sys.setswitchinterval(0.001)
    watch = LoopWatch(config.get_int("ottla.loop.turn.warn.ms"))
    watch.start()
    _add_process_metrics(broker, watch)
    broker.failed.add_done_callback(lambda _: stop.set())
    setting.on_start(broker)
    try:
        with _announced(broker, ready_file):
            await stop.wait()
    except OSError as error:
        await broker.stop()
        return _ready_file_refused(error)
    finally:
        watch.stop()  # a long turn of the stop delays no client
        logger.info("the longest turn of the event loop took %.1f ms", watch.longest_turn_ms)
    return await _stop(broker)


def _add_process_metrics(broker: "Broker | ControllerNode", watch: LoopWatch) -> None:
    if broker.metrics is not None:
        from ottla.broker.metrics.process import ProcessCollector

        broker.metrics.add(ProcessCollector(broker.env.threads, watch))


def _ready_file_refused(error: OSError) -> int:
    print(f"ottla serve: --ready-file cannot be written: {error}", file=sys.stderr)
    return NOT_STARTED


@contextmanager
def _announced(broker: "Broker | ControllerNode", ready_file: Path | None) -> Iterator[None]:
    """Prints the line `ready` and writes the file, which has the whole address as soon as it exists."""
    host, port = broker.address
    if ready_file is not None:
        unfinished = ready_file.with_name(f"{ready_file.name}.tmp")
        unfinished.write_text(f"{host}:{port}\n", encoding="utf-8")
        unfinished.replace(ready_file)
    if broker.metrics is not None:
        print(f"metrics {broker.metrics.url}", flush=True)
    print(f"ready {host}:{port}", flush=True)
    yield
    if ready_file is not None:
        ready_file.unlink(missing_ok=True)


async def _start_unless_stopped(
    config: BrokerConfig, stop: asyncio.Event, failed: "asyncio.Future[Exception]", env: Env | None
) -> "Broker | ControllerNode | None":
    """None if `stop` is set first. The start may take for ever: a broker waits for the majority of the controllers."""
    starting, stopping = asyncio.create_task(_start(config, failed, env)), asyncio.create_task(stop.wait())
    await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    starting.cancel()
    await asyncio.wait((starting,))
    return None if starting.cancelled() else starting.result()


async def _start(
    config: BrokerConfig, failed: "asyncio.Future[Exception]", env: Env | None
) -> "Broker | ControllerNode":
    if "broker" in config.get_list("process.roles"):
        return await Broker.start(config, env=env, failed=failed)
    return await ControllerNode.start(config, env=env, failed=failed)


async def _stop(broker: "Broker | ControllerNode") -> int:
    if broker.failed.done():
        reason = _failure_text(broker.failed.result())
        logger.critical("the broker stops: %s", reason)
        print(f"ottla serve: the broker stops: {reason}", file=sys.stderr, flush=True)
    await broker.stop()
    return FAILED if broker.failed.done() else 0


def _failure_text(error: Exception) -> str:
    """What happened, and what to do."""
    if isinstance(error, OSError | OfflineDirectoryError):
        return f"{error}. Fix the disk and start the broker again"
    code = error.code if isinstance(error, KafkaError) else None
    if code in (ErrorCode.stale_broker_epoch, ErrorCode.broker_id_not_registered):
        return str(error)  # it says what to do
    if code is ErrorCode.unsupported_version:
        return f"{error}. Start it with the release that wrote the metadata log, or a newer one"
    return f"{error}. Keep a copy of the metadata log, and report this error"


def _tune_garbage_collector() -> None:
    """Excludes all objects of the start from garbage collection, and makes it rarer: its pauses are seen in the p99."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(50_000, 20, 50)


def _raise_open_files_limit() -> None:
    """Each segment takes a file and two memory maps: a few hundred partitions would reach the usual limit of 1024."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError):
        logger.warning("the limit of open files cannot be raised and stays at %d", soft)
