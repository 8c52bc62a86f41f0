"""Measures requests: how many, and how long their handlers take and wait.

Nothing is measured unless metrics are served: the dispatcher is wrapped only then. The phases have Kafka's names. There
is one event loop instead of queues between threads, so Kafka's queue times have no counterpart; the time of sending is
not measured.
"""

from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from struct import Struct

from ottla.broker.connection import ClientConnection, Dispatch, ResponseParts
from ottla.broker.promise import Promise
from ottla.metrics import Collection, Collector, Family, Histogram, Kind, labels, line
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.framing import Frame

_NS_PER_S = 1_000_000_000
_NS_PER_MS = 1_000_000
_BOUNDS_NS = tuple(
    int(milliseconds * _NS_PER_MS)
    for milliseconds in (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000)
)
_KEY_AND_VERSION = Struct(">hh")

_REQUESTS = "kafka_network_requestmetrics_"
_COUNT = Family(
    f"{_REQUESTS}requests_total", Kind.COUNTER, "Requests that were served.", ("request", "version")
)
_LOCAL = Family(
    f"{_REQUESTS}localtimems",
    Kind.SUMMARY,
    "Milliseconds from the decoding of a request until its handler responds or waits.",
    ("request",),
)
_REMOTE = Family(
    f"{_REQUESTS}remotetimems",
    Kind.SUMMARY,
    "Milliseconds for which responses wait: for replicas, records, members, the disk, or a thread.",
    ("request",),
)
_TOTAL = Family(
    f"{_REQUESTS}totaltimems", Kind.SUMMARY, "The sum of both times, in milliseconds.", ("request",)
)
_SECONDS = Family(
    "ottla_request_duration_seconds",
    Kind.HISTOGRAM,
    "The same total time in seconds, in buckets.",
    ("request",),
)
FAMILIES = (_COUNT, _LOCAL, _REMOTE, _TOTAL, _SECONDS)


class RequestTimes:
    """Of one version of an API."""

    __slots__ = ("local_ns", "remote_ns", "total")

    def __init__(self) -> None:
        self.local_ns = 0
        self.remote_ns = 0
        self.total = Histogram(_BOUNDS_NS)

    def add(self, other: "RequestTimes") -> None:
        self.local_ns += other.local_ns
        self.remote_ns += other.remote_ns
        self.total.add(other.total)


class RequestMetrics(Collector):
    families = FAMILIES

    def __init__(self, monotonic_ns: Callable[[], int]) -> None:
        self._monotonic_ns = monotonic_ns
        self._times: dict[tuple[int, ...], RequestTimes] = {}  # by API key and version

    def measured(self, dispatch: Dispatch) -> Dispatch:
        """`dispatch`, with measurements. They take about 0.6 microseconds."""
        monotonic_ns, known, unpack, responded = (
            self._monotonic_ns, self._times, _KEY_AND_VERSION.unpack_from, self._responded
        )  # fmt: skip

        def measure(connection: ClientConnection, frame: Frame) -> "ResponseParts | Promise[ResponseParts]":
            began_ns = monotonic_ns()
            response = dispatch(connection, frame)  # raises MalformedRequest if the frame is too short
            local_ns = monotonic_ns() - began_ns
            key = unpack(frame)
            times = known.get(key)
            if times is None:
                times = known[key] = RequestTimes()
            times.local_ns += local_ns
            if isinstance(response, Promise):
                return response.then(partial(responded, times, began_ns, local_ns))
            times.total.observe(local_ns)
            return response

        return measure

    def _responded(
        self, times: RequestTimes, began_ns: int, local_ns: int, response: ResponseParts
    ) -> ResponseParts:
        total_ns = self._monotonic_ns() - began_ns
        times.remote_ns += total_ns - local_ns
        times.total.observe(total_ns)
        return response

    async def start(self) -> "_Requests":
        return _Requests(self._times)


class _Requests(Collection[None]):
    def __init__(self, times: dict[tuple[int, ...], RequestTimes]) -> None:
        self._times = times

    def collect(self, item: None) -> Sequence[str]:
        raise AssertionError("there are no items")

    def finish(self) -> Sequence[str]:
        counted: list[str] = []
        by_api: dict[str, RequestTimes] = {}
        for (key, version), times in sorted(self._times.items(), key=itemgetter(0)):
            request = request_name(key)
            counted.append(line(_COUNT.name, labels(request=request, version=version), times.total.count))
            by_api.setdefault(request, RequestTimes()).add(times)
        local, remote, total, histograms = [], [], [], []
        for request, times in by_api.items():
            labels_text, count = labels(request=request), times.total.count
            local.append(_summary(_LOCAL, labels_text, times.local_ns, count))
            remote.append(_summary(_REMOTE, labels_text, times.remote_ns, count))
            total.append(_summary(_TOTAL, labels_text, times.total.sum, count))
            histograms.append(times.total.lines(_SECONDS.name, labels_text, _NS_PER_S))
        return tuple(map("".join, (counted, local, remote, total, histograms)))


def _summary(family: Family, labels_text: str, sum_ns: int, count: int) -> str:
    return line(f"{family.name}_sum", labels_text, sum_ns / _NS_PER_MS) + line(
        f"{family.name}_count", labels_text, count
    )


def request_name(key: int) -> str:
    """As Kafka writes it: `ListOffsets`."""
    return ApiKey(key).name.title().replace("_", "")
