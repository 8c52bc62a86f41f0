"""Adds the broker's log messages to the trace of a run, for a person who reads why it failed."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from ottla.sim.env import World


class TraceHandler(logging.Handler):
    """`world` is that of the current run."""

    def __init__(self) -> None:
        super().__init__()
        self.world: World | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if self.world is not None:
            self.world.trace.remark(f"{record.levelname} {record.name}: {record.getMessage()}")

    @contextmanager
    def attached(self, logger: logging.Logger) -> Iterator[None]:
        """Meanwhile the messages go nowhere else."""
        level, propagate = logger.level, logger.propagate
        logger.addHandler(self)
        logger.setLevel(logging.INFO)
        logger.propagate = False
        try:
            yield
        finally:
            logger.removeHandler(self)
            logger.setLevel(level)
            logger.propagate = propagate
