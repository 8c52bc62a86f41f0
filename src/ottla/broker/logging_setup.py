"""The broker's log on stderr, as text or as one JSON object per line. stdout has only the line `ready`."""

import logging
import os
import queue
import stat
import sys
import threading
from typing import TextIO

_LINES_MAX = 10_000
_FLUSH_TIMEOUT_S = 5.0


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        import json

        line = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S") + f".{int(record.msecs):03d}",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


class PipeHandler(logging.Handler):
    """Writes to a pipe from a thread: whoever reads it may be slow, and the event loop must not wait for that.

    If nobody reads, lines are dropped, and a line that says how many follows. The event loop formats the lines, because
    the objects in a message may change.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._lines: queue.Queue[str] = queue.Queue(_LINES_MAX)
        self._dropped = 0
        threading.Thread(target=self._write, name="ottla-log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if self._dropped:
                dropped = logging.LogRecord(
                    "ottla.broker",
                    logging.WARNING,
                    "",
                    0,
                    "%d lines of the log were dropped: nobody read stderr",
                    (self._dropped,),
                    None,
                )
                self._lines.put_nowait(self.format(dropped))
                self._dropped = 0
            self._lines.put_nowait(self.format(record))
        except queue.Full:
            self._dropped += 1
        except Exception:
            self.handleError(record)

    def flush(self) -> None:
        """Waits until the lines are written, but not for ever: called when the process ends."""
        with self._lines.all_tasks_done:
            self._lines.all_tasks_done.wait_for(lambda: not self._lines.unfinished_tasks, _FLUSH_TIMEOUT_S)

    def _write(self) -> None:
        while True:
            line = self._lines.get()
            try:
                self._stream.write(f"{line}\n")
                self._stream.flush()
            except (OSError, ValueError):  # nobody will ever read it
                pass
            finally:
                self._lines.task_done()


def configure_logging(log_format: str, level: str) -> None:
    handler = PipeHandler(sys.stderr) if _is_pipe(sys.stderr) else logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        _JsonFormatter()
        if log_format == "json"
        else logging.Formatter("%(asctime)s.%(msecs)03d %(levelname)-7s %(name)s: %(message)s", "%H:%M:%S")
    )
    root = logging.getLogger("ottla")
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    root.propagate = False


def _is_pipe(stream: TextIO) -> bool:
    try:
        mode = os.fstat(stream.fileno()).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
