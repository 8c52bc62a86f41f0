"""Serves a running pipeline over HTTP: `/healthz` and `/readyz` for a supervisor such as Kubernetes, `/metrics` for
Prometheus.

Who can connect reads the names and errors of the stages. So it listens on loopback addresses, unless others are asked
for.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import BoundedSemaphore, Thread
from typing import Any

from ottla.metrics import TextFormat, choose_format
from ottla.model.http_address import ADDRESS_FORMAT, HttpAddress, parse_http_address
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.lag_watch import StageLag
from ottla.pipeline.metrics import RunState, text_of
from ottla.pipeline.runner import StageRun

# A poll starts stages, which takes minutes on a busy machine.
_POLL_TIMEOUT_S = 300.0
_REQUEST_TIMEOUT_S = 10.0
# Each has a thread.
_CONNECTIONS_MAX = 16


class Health:
    """What the endpoints report. The runner calls `polled` at every poll of its stages."""

    def __init__(
        self,
        runs: Sequence[StageRun],
        clock: Callable[[], float] = time.monotonic,
        lags: Callable[[], Mapping[str, StageLag]] = dict,
    ) -> None:
        """`lags` are those of the stages, as far as they are known."""
        self._runs = runs
        self._lags = lags
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

    def metrics(self, text_format: TextFormat) -> str:
        state = RunState(self._runs, self._lags(), self.is_live(), self.is_ready(), time.time())
        return text_of(state, text_format)

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

    class Server(_Server):
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


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, *arguments: Any) -> None:
        self._free = BoundedSemaphore(_CONNECTIONS_MAX)
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Closes a connection if there are too many: those that say nothing end after their timeout."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A client that hangs up is no error of the pipeline.
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


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
        elif path == "/metrics":
            text_format = choose_format(self.headers.get("Accept", ""))
            self._send(200, text_format.content_type, health.metrics(text_format).encode(errors="replace"))
        else:
            self._respond(404, {"error": f"There is no {path}. Ask for /metrics, /healthz or /readyz."})

    do_HEAD = do_GET

    def _respond(self, status: int, document: dict[str, Any]) -> None:
        self._send(status, "application/json", f"{json.dumps(document)}\n".encode())

    def _send(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """A probe every second would fill the log."""
