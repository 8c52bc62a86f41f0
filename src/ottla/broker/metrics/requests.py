"""Measures requests: how many, how large, and how long each phase takes.

Nothing is measured unless metrics are served: the dispatcher is wrapped, and connections are of another class, only
then. The phases have Kafka's names. A request waits in the queue if the same client has sent one before it; a response
waits in the queue while others of the same turn of the event loop are added to it.
"""

from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from struct import Struct
from typing import Any

from ottla.broker.connection import Dispatch, ResponseParts
from ottla.broker.metrics.measured_connection import MeasuredConnection
from ottla.broker.metrics.request_times import NS_PER_MS, SHOWN_NS, RequestTimes
from ottla.broker.promise import Promise
from ottla.metrics import Collection, Collector, Family, Kind, RecentQuantiles, labels, line
from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.framing import Frame

_NS_PER_S = 1_000_000_000
_KEY_AND_VERSION = Struct(">hh")
# Instead of a version that no broker speaks. ApiVersions is answered in each of 65,536 (KIP-511), and each would have a
# series that stays.
_UNSUPPORTED = -1
_QUANTILES = {"0.50": 0.5, "0.75": 0.75, "0.95": 0.95, "0.98": 0.98, "0.99": 0.99, "0.999": 0.999}

_REQUESTS = "kafka_network_requestmetrics_"


def _summary(name: str, meaning: str) -> Family:
    return Family(f"{_REQUESTS}{name}", Kind.SUMMARY, meaning, ("request",))


_COUNT = Family(
    f"{_REQUESTS}requests_total", Kind.COUNTER, "Requests that were served.", ("request", "version")
)
_BYTES = _summary("requestbytes", "Bytes of requests.")
_PHASES = {
    "queue_ns": _summary("requestqueuetimems", "Milliseconds for which requests wait for earlier ones."),
    "local_ns": _summary(
        "localtimems", "Milliseconds from the decoding of a request until its handler responds or waits."
    ),
    "remote_ns": _summary(
        "remotetimems",
        "Milliseconds for which responses wait: for replicas, records, members, the disk, or a thread.",
    ),
    "response_ns": _summary("responsequeuetimems", "Milliseconds for which responses wait to be sent."),
    "send_ns": _summary("responsesendtimems", "Milliseconds until the socket has taken the response."),
}
_TOTAL = _summary(
    "totaltimems",
    "The sum of all phases, in milliseconds, and its quantiles in the last five minutes.",
)
_SECONDS = Family(
    "ottla_request_duration_seconds",
    Kind.HISTOGRAM,
    "The same total time in seconds, in buckets.",
    ("request",),
)
FAMILIES = (_COUNT, _BYTES, *_PHASES.values(), _TOTAL, _SECONDS)


class RequestMetrics(Collector):
    families = FAMILIES

    def __init__(self, monotonic_ns: Callable[[], int]) -> None:
        self._monotonic_ns = monotonic_ns
        self._times: dict[tuple[int, ...], RequestTimes] = {}  # by API key and version
        self._quantiles: dict[str, RecentQuantiles] = {}

    def measured(self, dispatch: Dispatch) -> Dispatch:
        """`dispatch`, with measurements. They take half a microsecond for most requests: see `RequestRun`."""
        monotonic_ns, unpack, begin = self._monotonic_ns, _KEY_AND_VERSION.unpack_from, self._begin

        # `connection` is a MeasuredConnection, because the node has no others then. To check that would take time, too.
        def measure(connection: Any, frame: Frame) -> "ResponseParts | Promise[ResponseParts]":
            response = dispatch(connection, frame)  # raises MalformedRequest if the frame is too short
            now_ns = monotonic_ns()
            run = connection.run
            if unpack(frame) != run.key or response.__class__ is not list:
                return begin(connection, frame, response, now_ns)
            run.count += 1
            run.size += len(frame)
            run.ends_ns += now_ns
            run.ended_ns = now_ns
            return response

        return measure

    def _begin(
        self,
        connection: MeasuredConnection,
        frame: Frame,
        response: "ResponseParts | Promise[ResponseParts]",
        now_ns: int,
    ) -> "ResponseParts | Promise[ResponseParts]":
        """Begins a run with a request of another API, or ends one with a request that is not answered at once."""
        key = _KEY_AND_VERSION.unpack_from(frame)
        times = self._times.get(key)
        if times is None:
            times = self._times.setdefault(_counted_key(*key), RequestTimes())
        began_ns, arrived_ns, size = connection.run.ended_ns, connection.received_ns, len(frame)
        if isinstance(response, Promise):
            times.handled(size, arrived_ns, began_ns, now_ns)
            connection.end_run(now_ns)
            return response.then(partial(self._responded, connection, times, arrived_ns, now_ns))
        if response is None:
            times.handled(size, arrived_ns, began_ns, now_ns)
            times.total.observe(now_ns - arrived_ns)
            connection.end_run(now_ns)
            return None
        connection.end_run(began_ns)
        run = connection.run
        run.key, run.times, run.count, run.size = key, times, 1, size
        run.ends_ns = run.ended_ns = now_ns
        return response

    def _responded(
        self,
        connection: MeasuredConnection,
        times: RequestTimes,
        arrived_ns: int,
        waits_since_ns: int,
        response: ResponseParts,
    ) -> ResponseParts:
        now_ns = self._monotonic_ns()
        times.remote_ns += now_ns - waits_since_ns
        if response is None:
            times.total.observe(now_ns - arrived_ns)
        else:
            connection.late.append((times, arrived_ns, now_ns))
        connection.end_run(now_ns)
        return response

    async def start(self) -> "_Requests":
        return _Requests(self._times, self._quantiles, self._monotonic_ns())


class _Requests(Collection[None]):
    def __init__(
        self,
        times: dict[tuple[int, ...], RequestTimes],
        quantiles: dict[str, RecentQuantiles],
        now_ns: int,
    ) -> None:
        self._times = times
        self._quantiles = quantiles
        self._now_ns = now_ns

    def collect(self, item: None) -> Sequence[str]:
        raise AssertionError("there are no items")

    def finish(self) -> Sequence[str]:
        counted: list[str] = []
        by_api: dict[str, RequestTimes] = {}
        for (key, version), times in sorted(self._times.items(), key=itemgetter(0)):
            request, shown = request_name(key), "unsupported" if version == _UNSUPPORTED else version
            counted.append(line(_COUNT.name, labels(request=request, version=shown), times.count))
            by_api.setdefault(request, RequestTimes()).add(times)
        written: list[list[str]] = [counted, *([] for _ in FAMILIES[1:])]
        for request, times in by_api.items():
            for lines, text in zip(written[1:], self._lines(request, times), strict=True):
                lines.append(text)
        return tuple(map("".join, written))

    def _lines(self, request: str, times: RequestTimes) -> list[str]:
        labels_text = labels(request=request)
        recent = self._quantiles.setdefault(request, RecentQuantiles())
        values = recent.read(times.total, tuple(_QUANTILES.values()), self._now_ns)
        quantiles = zip(_QUANTILES, values or (), strict=False)
        return [
            _sum_and_count(_BYTES, labels_text, times.request_bytes, times.count),
            *(
                _sum_and_count(family, labels_text, getattr(times, name) / NS_PER_MS, times.count)
                for name, family in _PHASES.items()
            ),
            "".join(
                line(_TOTAL.name, labels(request=request, quantile=quantile), round(value / NS_PER_MS, 6))
                for quantile, value in quantiles
            )
            + _sum_and_count(_TOTAL, labels_text, times.total.sum / NS_PER_MS, times.total.count),
            times.total.lines(_SECONDS.name, labels_text, _NS_PER_S, SHOWN_NS),
        ]


def _counted_key(key: int, version: int) -> tuple[int, int]:
    spec = APIS[ApiKey(key)]
    return key, version if spec.min_version <= version <= spec.max_version else _UNSUPPORTED


def _sum_and_count(family: Family, labels_text: str, total: float, count: int) -> str:
    return line(f"{family.name}_sum", labels_text, total) + line(f"{family.name}_count", labels_text, count)


def request_name(key: int) -> str:
    """As Kafka writes it: `ListOffsets`."""
    return ApiKey(key).name.title().replace("_", "")
