"""Measures requests: how many, how large, and how long each phase takes.

Nothing is measured unless metrics are served: the dispatcher is wrapped, and connections are of another class, only
then. The phases have Kafka's names. A request waits in the queue if the same client has sent one before it; a response
waits in the queue while others of the same turn of the event loop are added to it.
"""

from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from struct import Struct

from ottla.broker.connection import ClientConnection, Dispatch, ResponseParts
from ottla.broker.metrics.measured_connection import MeasuredConnection
from ottla.broker.promise import Promise
from ottla.metrics import Collection, Collector, Family, Histogram, Kind, RecentQuantiles, labels, line
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.framing import Frame

_NS_PER_S = 1_000_000_000
_NS_PER_MS = 1_000_000
_SHOWN_NS = frozenset(
    int(milliseconds * _NS_PER_MS)
    for milliseconds in (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000)
)
# For quantiles: each bound is at most a fifth larger than the one before.
_BOUNDS_NS = tuple(sorted(_SHOWN_NS | {int(10_000 * 1.2**step) for step in range(86)}))
_KEY_AND_VERSION = Struct(">hh")
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


class RequestTimes:
    """Of one version of an API."""

    __slots__ = (
        "count", "local_ns", "queue_ns", "remote_ns", "request_bytes", "response_ns", "send_ns", "total"
    )  # fmt: skip

    def __init__(self) -> None:
        self.count = 0
        self.request_bytes = 0
        self.queue_ns = 0
        self.local_ns = 0
        self.remote_ns = 0
        self.response_ns = 0
        self.send_ns = 0
        self.total = Histogram(_BOUNDS_NS)

    def sent(self, arrived_ns: int, waited_ns: int, send_ns: int, now_ns: int) -> None:
        self.response_ns += waited_ns
        self.send_ns += send_ns
        self.total.observe(now_ns - arrived_ns)

    def add(self, other: "RequestTimes") -> None:
        for name in self.__slots__[:-1]:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.total.add(other.total)


class RequestMetrics(Collector):
    families = FAMILIES

    def __init__(self, monotonic_ns: Callable[[], int]) -> None:
        self._monotonic_ns = monotonic_ns
        self._times: dict[tuple[int, ...], RequestTimes] = {}  # by API key and version
        self._quantiles: dict[str, RecentQuantiles] = {}

    def measured(self, dispatch: Dispatch) -> Dispatch:
        """`dispatch`, with measurements. They take about a microsecond."""
        monotonic_ns, known, unpack, responded = (
            self._monotonic_ns, self._times, _KEY_AND_VERSION.unpack_from, self._responded
        )  # fmt: skip

        def measure(connection: ClientConnection, frame: Frame) -> "ResponseParts | Promise[ResponseParts]":
            began_ns = monotonic_ns()
            arrived_ns = connection.received_ns if isinstance(connection, MeasuredConnection) else began_ns
            response = dispatch(connection, frame)  # raises MalformedRequest if the frame is too short
            now_ns = monotonic_ns()
            key = unpack(frame)
            times = known.get(key)
            if times is None:
                times = known[key] = RequestTimes()
            times.count += 1
            times.request_bytes += len(frame)
            times.queue_ns += began_ns - arrived_ns
            times.local_ns += now_ns - began_ns
            if isinstance(response, Promise):
                return response.then(partial(responded, connection, times, arrived_ns, now_ns))
            _will_send(connection, times, arrived_ns, now_ns, response)
            return response

        return measure

    def _responded(
        self,
        connection: ClientConnection,
        times: RequestTimes,
        arrived_ns: int,
        waits_since_ns: int,
        response: ResponseParts,
    ) -> ResponseParts:
        now_ns = self._monotonic_ns()
        times.remote_ns += now_ns - waits_since_ns
        _will_send(connection, times, arrived_ns, now_ns, response)
        return response

    async def start(self) -> "_Requests":
        return _Requests(self._times, self._quantiles, self._monotonic_ns())


def _will_send(
    connection: ClientConnection, times: RequestTimes, arrived_ns: int, now_ns: int, response: ResponseParts
) -> None:
    if response is not None and isinstance(connection, MeasuredConnection):
        connection.unsent.append((times, arrived_ns, now_ns))
    else:
        times.total.observe(now_ns - arrived_ns)


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
            request = request_name(key)
            counted.append(line(_COUNT.name, labels(request=request, version=version), times.count))
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
                _sum_and_count(family, labels_text, getattr(times, name) / _NS_PER_MS, times.count)
                for name, family in _PHASES.items()
            ),
            "".join(
                line(_TOTAL.name, labels(request=request, quantile=quantile), round(value / _NS_PER_MS, 6))
                for quantile, value in quantiles
            )
            + _sum_and_count(_TOTAL, labels_text, times.total.sum / _NS_PER_MS, times.total.count),
            times.total.lines(_SECONDS.name, labels_text, _NS_PER_S, _SHOWN_NS),
        ]


def _sum_and_count(family: Family, labels_text: str, total: float, count: int) -> str:
    return line(f"{family.name}_sum", labels_text, total) + line(f"{family.name}_count", labels_text, count)


def request_name(key: int) -> str:
    """As Kafka writes it: `ListOffsets`."""
    return ApiKey(key).name.title().replace("_", "")
