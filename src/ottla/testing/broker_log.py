"""Keeps the log of the brokers in this process, for the report of a failing test.

The records do not reach the handlers of the test's own program: `caplog` and the like show what the tested program
logs. The loggers belong to the process, so brokers that run at the same time have one log.
"""

import logging
from collections import deque

_LOGGERS = (
    "broker", "cleaner", "controller", "coordinator", "housekeeping", "loop", "metrics", "network", "partition",
    "quorum", "replication", "requests", "storage", "telemetry", "transactions",
)  # fmt: skip
_LINES_MAX = 20_000


def broker_loggers() -> list[logging.Logger]:
    """The loggers of a broker. Not `ottla.consumer`: it belongs to programs that consume."""
    return [logging.getLogger(f"ottla.{name}") for name in _LOGGERS]


class BrokerLog:
    """The last lines of the log since `open`."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=_LINES_MAX)
        self.position = 0  # counts all lines, also those that were dropped

    def open(self) -> None:
        if not _capture.logs:
            for logger in broker_loggers():
                _levels[logger] = logger.level
                logger.setLevel(logging.INFO)
                logger.addFilter(_capture)
        _capture.logs.append(self)

    def close(self) -> None:
        if self in _capture.logs:
            _capture.logs.remove(self)
            if not _capture.logs:
                for logger, level in _levels.items():
                    logger.removeFilter(_capture)
                    logger.setLevel(level)

    def add(self, line: str) -> None:
        self._lines.append(line)
        self.position += 1

    def text(self, since: int = 0) -> str:
        """The lines since a `position`."""
        lines = list(self._lines)
        dropped = self.position - len(lines)
        return "\n".join(lines[max(since - dropped, 0) :])


class _Capture:
    """A filter of loggers, which keeps records from all handlers: pytest adds its own even to loggers that do not
    propagate.
    """

    def __init__(self) -> None:
        self.logs: list[BrokerLog] = []
        self._formatter = logging.Formatter(
            "%(asctime)s.%(msecs)03d %(levelname)-7s %(name)s: %(message)s", "%H:%M:%S"
        )

    def filter(self, record: logging.LogRecord) -> bool:
        line = self._formatter.format(record)
        for log in self.logs:
            log.add(line)
        return False


_capture = _Capture()
_levels: dict[logging.Logger, int] = {}  # of the loggers before the first log was opened
