"""A broker as a process: logging, signals, the line that says it is ready, the exit code."""

import asyncio
import gc
import logging
import signal
import sys

from ottla.broker.log_lines import configure_logging
from ottla.broker.node import Broker
from ottla.env.loop_watch import LoopWatch
from ottla.model.config import BrokerConfig, ConfigError
from ottla.model.errors import KafkaError
from ottla.storage.meta_properties import OfflineDirectoryError, UnusableDirectoryError

logger = logging.getLogger("ottla.broker")

FAILED = 1
REFUSED = 2


def run_broker(config: BrokerConfig) -> int:
    """Serves until SIGTERM or SIGINT. 0 after a clean stop, 1 where it had to give up, 2 where it could not start."""
    configure_logging(config.get_str("ottla.log.format"), config.get_str("ottla.log.level"))
    _raise_open_files_limit()
    try:
        import uvloop
    except ImportError:  # the plain event loop serves too, only slower
        return asyncio.run(_serve(config))
    return uvloop.run(_serve(config))


async def _serve(config: BrokerConfig) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    broker = Broker(config)
    try:
        await broker.start()
    except (ConfigError, UnusableDirectoryError, OfflineDirectoryError, KafkaError, OSError) as error:
        where = ", ".join(str(listener) for listener in config.broker_listeners)
        reason = error.message if isinstance(error, KafkaError) else error
        print(f"ottla serve: the broker cannot start (listeners {where}): {reason}", file=sys.stderr)
        return REFUSED
    _settle_garbage_collector()
    # A thread that computes (an import, a long message) gives way to the event loop after 1 ms instead of 5.
    sys.setswitchinterval(0.001)
    watch = LoopWatch(config.get_int("ottla.loop.turn.warn.ms"))
    watch.start()
    host, port = broker.address
    print(f"ready {host}:{port}", flush=True)
    try:
        return await _until_stopped(broker, stop)
    finally:
        watch.stop()
        logger.info("the longest turn of the event loop took %.1f ms", watch.longest_turn_ms)


async def _until_stopped(broker: Broker, stop: asyncio.Event) -> int:
    assert broker.failed is not None
    broker.failed.add_done_callback(lambda _: stop.set())
    await stop.wait()
    if broker.failed.done():
        reason = f"{broker.failed.result()}. Fix the disk and start the broker again"
        logger.critical("the broker stops: %s", reason)
        print(f"ottla serve: the broker stops: {reason}", file=sys.stderr, flush=True)
    await broker.stop()
    return FAILED if broker.failed.done() else 0


def _settle_garbage_collector() -> None:
    """What is loaded now stays: collections need not look at it again, and come less often (they show in p99)."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(50_000, 20, 50)


def _raise_open_files_limit() -> None:
    """A file and two maps for each segment: the usual soft limit of 1024 would be met by a few hundred partitions."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError):
        logger.warning("the limit of open files stays at %d", soft)
