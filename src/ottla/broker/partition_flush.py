"""Flushes the log of a partition in a thread."""

import asyncio
import logging

from ottla.broker.hosted_partition import HostedPartition
from ottla.env import Env
from ottla.storage.disk_errors import RETRY_S, is_disk_failure

logger = logging.getLogger("ottla.partition")


async def flush_partition(env: Env, hosted: HostedPartition, up_to: int | None = None) -> None:
    """Flushes the log up to `up_to`, by default to its end. A disk failure takes the directory offline.

    If file descriptors have run out it retries: records are not acknowledged before they are on disk. A partition that
    was deleted has nothing to flush any more.
    """
    while not hosted.is_closed:
        while hosted.last_copy is not None:  # a flushed record would be missing in the synced copy
            await hosted.last_copy.wait()
        log = hosted.log
        try:
            work = log.prepare_flush(up_to)
            if work is None:
                break
            await env.threads.run(work.sync)
            log.complete_flush(work)
            # Otherwise a roll or a truncation came in between, and the flush must be repeated.
            is_flushed = log.recovery_point >= min(work.offset, log.log_end_offset)
            if is_flushed or hosted.failure is not None:
                break
        except OSError as error:
            if (
                hosted.log is not log
            ):  # the replica was moved to another directory, whose log is to be flushed then
                continue
            logger.error("%s", hosted.storage_failed(error).message)
            if is_disk_failure(error) or hosted.failure is not None:
                return
            await asyncio.sleep(RETRY_S)
    hosted.flushed(env.clock.monotonic_ms())
