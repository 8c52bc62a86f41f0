"""The times of requests by phase: of one version of an API, and of requests that are answered together."""

from ottla.metrics import Histogram

NS_PER_MS = 1_000_000
SHOWN_NS = frozenset(
    int(milliseconds * NS_PER_MS)
    for milliseconds in (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000)
)
# For quantiles: each bound is at most a fifth larger than the one before.
_BOUNDS_NS = tuple(sorted(SHOWN_NS | {int(10_000 * 1.2**step) for step in range(86)}))

NO_KEY = (-1, -1)


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

    def handled(self, size: int, arrived_ns: int, began_ns: int, now_ns: int) -> None:
        """A request has its response, or waits for it."""
        self.count += 1
        self.request_bytes += size
        self.queue_ns += began_ns - arrived_ns
        self.local_ns += now_ns - began_ns

    def sent(self, arrived_ns: int, waited_ns: int, send_ns: int, now_ns: int) -> None:
        """A response that had to be waited for."""
        self.response_ns += waited_ns
        self.send_ns += send_ns
        self.total.observe(now_ns - arrived_ns)

    def add(self, other: "RequestTimes") -> None:
        for name in self.__slots__[:-1]:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.total.add(other.total)


class RequestRun:
    """Requests of one version of an API that were read at once, answered at once, and whose responses go out together.

    A small request takes fifteen microseconds in all, so measuring one may take a fraction of one. The sums of a run
    need one look at the clock for each request: it begins when the one before it ends. The rest is added up once.
    """

    __slots__ = ("arrived_ns", "began_ns", "count", "ended_ns", "ends_ns", "key", "size", "times")

    def __init__(self, began_ns: int, arrived_ns: int) -> None:
        self.key: tuple[int, ...] = NO_KEY
        self.times: RequestTimes | None = None  # with the key
        self.restart(began_ns, arrived_ns)

    def restart(self, began_ns: int, arrived_ns: int) -> None:
        self.arrived_ns = arrived_ns
        self.began_ns = self.ended_ns = began_ns
        self.count = 0
        self.size = 0
        self.ends_ns = 0  # the sum of the times when they ended

    def sent(self, send_began_ns: int, now_ns: int) -> None:
        times, count = self.times, self.count
        assert times is not None, "a run without requests sends nothing"
        times.count += count
        times.request_bytes += self.size
        times.queue_ns += self.began_ns + self.ends_ns - self.ended_ns - count * self.arrived_ns
        times.local_ns += self.ended_ns - self.began_ns
        times.response_ns += count * send_began_ns - self.ends_ns
        times.send_ns += count * (now_ns - send_began_ns)
        times.total.observe(now_ns - self.arrived_ns, count)
