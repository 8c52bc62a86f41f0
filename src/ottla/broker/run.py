"""Runs a broker as a process: logging, signals, the line `ready`, the exit code."""

import asyncio
import gc
import logging
import signal
import sys

from ottla.broker.logging_setup import configure_logging
from ottla.broker.node import Broker
from ottla.env.loop_watch import LoopWatch
from ottla.model.config import BrokerConfig, ConfigError
from ottla.model.errors import KafkaError
from ottla.storage.meta_properties import OfflineDirectoryError, UnusableDirectoryError

logger = logging.getLogger("ottla.broker")

FAILED = 1
NOT_STARTED = 2


def run_broker(config: BrokerConfig) -> int:
    """Serves until SIGTERM or SIGINT.

    Returns the exit code: 0 after a clean stop, 1 if the broker failed while it served, 2 if it could not start.
    """
    configure_logging(config.get_str("ottla.log.format"), config.get_str("ottla.log.level"))
    _raise_open_files_limit()
    try:
        import uvloop
    except ImportError:  # asyncio's own event loop works too, but is slower
        return asyncio.run(_serve(config))
    return uvloop.run(_serve(config))


async def _serve(config: BrokerConfig) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        broker = await Broker.start(config)
    except (ConfigError, UnusableDirectoryError, OfflineDirectoryError, KafkaError, OSError) as error:
        where = ", ".join(str(listener) for listener in config.broker_listeners)
        reason = error.message if isinstance(error, KafkaError) else error
        print(f"ottla serve: the broker cannot start (listeners {where}): {reason}", file=sys.stderr)
        return NOT_STARTED
    _tune_garbage_collector()
    # A thread that computes (an import, a long message) hands over to the event loop after 1 ms instead of 5.
    sys.setswitchinterval(0.001)
    watch = LoopWatch(config.get_int("ottla.loop.turn.warn.ms"))
    watch.start()
    host, port = broker.address
    print(f"ready {host}:{port}", flush=True)
    broker.failed.add_done_callback(lambda _: stop.set())
    try:
        await stop.wait()
    finally:
        watch.stop()  # a long turn of the stop delays no client
        logger.info("the longest turn of the event loop took %.1f ms", watch.longest_turn_ms)
    return await _stop(broker)


async def _stop(broker: Broker) -> int:
    if broker.failed.done():
        reason = f"{broker.failed.result()}. Fix the disk and start the broker again"
        logger.critical("the broker stops: %s", reason)
        print(f"ottla serve: the broker stops: {reason}", file=sys.stderr, flush=True)
    await broker.stop()
    return FAILED if broker.failed.done() else 0


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
