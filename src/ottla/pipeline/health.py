"""Serves the health of a running pipeline over HTTP: `/healthz` and `/readyz`, for a supervisor such as Kubernetes.

Who can connect reads the names and errors of the stages. So it listens on loopback addresses, unless others are asked
for.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from ottla.model.http_address import ADDRESS_FORMAT, HttpAddress, parse_http_address
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.runner import StageRun

# A poll starts stages, which takes minutes on a busy machine.
_POLL_TIMEOUT_S = 300.0
_REQUEST_TIMEOUT_S = 10.0


class Health:
    """What the endpoints report. The runner calls `polled` at every poll of its stages."""

    def __init__(self, runs: Sequence[StageRun], clock: Callable[[], float] = time.monotonic) -> None:
        self._runs = runs
        self._clock = clock
        self._polled_at = clock()

    def polled(self) -> None:
        self._polled_at = self._clock()

    def is_live(self) -> bool:
        """Whether the process does its work. If it does not, a restart of the process is the remedy."""
        return self._clock() - self._polled_at < _POLL_TIMEOUT_S

    def is_ready(self) -> bool:
        """Whether all required stages run, or are done."""
        return self.is_live() and all(
            run.state in ("running", "done") for run in self._runs if run.is_required
        )

    def stages(self) -> list[dict[str, Any]]:
        return [
            {
                "stage": run.name,
                "state": run.state,
                "note": run.note,
                "required": run.is_required,
                "rows": run.rows,
                "batch": None if run.progress is None else run.progress.batch,
                "behind": None if run.progress is None else run.progress.behind,
            }
            for run in self._runs
        ]


def parse_address(text: str, *, allow_remote: bool) -> HttpAddress:
    """Raises PipelineError for an address that other machines could reach, unless `allow_remote`."""
    address = parse_http_address(text)
    if address is None:
        raise PipelineError(f"The address for --metrics is {text!r}.", ADDRESS_FORMAT)
    if not allow_remote and not address.is_loopback:
        raise PipelineError(
            f"--metrics {text}: other machines may reach this address, and read the names and errors of the stages.",
            "Use 127.0.0.1, or allow it with --metrics-remote.",
        )
    return address


@contextmanager
def serve_health(address: HttpAddress, health: Health) -> Iterator[str]:
    """Yields the URL. The server ends with the block."""

    class Handler(_Handler):
        reported = health

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        address_family = _family(address.host)

    try:
        server = Server(address, Handler)
    except OSError as error:
        raise PipelineError(
            f"--metrics cannot listen on {address}: {error.strerror}.",
            "Choose another address.",
        ) from None
    thread = Thread(target=server.serve_forever, name="health", daemon=True)
    thread.start()
    try:
        yield f"http://{address._replace(port=server.server_address[1])}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _family(host: str) -> Any:
    import socket

    return socket.AF_INET6 if ":" in host else socket.AF_INET


class _Handler(BaseHTTPRequestHandler):
    reported: Health
    timeout = _REQUEST_TIMEOUT_S
    protocol_version = "HTTP/1.1"
    server_version = "ottla"
    sys_version = ""

    def do_GET(self) -> None:
        health = self.reported
        path = self.path.partition("?")[0]
        if path == "/healthz":
            is_live = health.is_live()
            self._respond(200 if is_live else 503, {"live": is_live})
        elif path == "/readyz":
            is_ready = health.is_ready()
            self._respond(200 if is_ready else 503, {"ready": is_ready, "stages": health.stages()})
        else:
            self._respond(404, {"error": f"There is no {path}. Ask for /healthz or /readyz."})

    do_HEAD = do_GET

    def _respond(self, status: int, document: dict[str, Any]) -> None:
        body = f"{json.dumps(document)}\n".encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """A probe every second would fill the log."""
