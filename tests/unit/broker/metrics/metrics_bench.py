"""An HTTP client of the metrics of a simulated broker, and the samples that it gets."""

import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open_metrics
from prometheus_client.parser import text_string_to_metric_families as parse_prometheus
from tests.unit.broker.broker_bench import HOST, Bench, on_broker, until

from ottla.env.network import Stream

METRICS_PORT = 9404


def on_metered_broker(
    directories: Sequence[str] = ("/data",),
) -> Callable[[Callable[[Bench], Awaitable[None]]], Callable[[], None]]:
    """As `on_broker`, with metrics. The simulated host is not a loopback address."""
    return on_broker(
        directories=directories, ottla_metrics_address=f"{HOST}:{METRICS_PORT}", ottla_metrics_remote="true"
    )


class HttpClient:
    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.data = b""
        self.is_closed = False
        self._space = bytearray(65536)

    @classmethod
    async def connect(cls, bench: Bench, name: str = "prometheus") -> "HttpClient":
        stream: Any = await bench.world.network.host(name).connect(HOST, METRICS_PORT, cls)
        client: HttpClient = stream._receiver
        return client

    def buffer(self) -> memoryview:
        return memoryview(self._space)

    def received(self, count: int) -> None:
        self.data += self._space[:count]

    def drained(self) -> None: ...

    def closed(self, error: OSError | None) -> None:
        self.is_closed = True

    def send(self, *data: bytes) -> None:
        self.stream.send(data)

    @property
    def has_response(self) -> bool:
        head, end, body = self.data.partition(b"\r\n\r\n")
        return bool(end) and len(body) >= int(head_value(head, "Content-Length"))

    async def response(self) -> tuple[int, bytes, str]:
        """Status, head and body."""
        await until(lambda: self.has_response or self.is_closed)
        head, _, body = self.data.partition(b"\r\n\r\n")
        return int(head.split()[1]), head, body.decode()

    async def get(
        self, path: str = "/metrics", accept: str = "", method: str = "GET"
    ) -> tuple[int, bytes, str]:
        self.send(f"{method} {path} HTTP/1.1\r\nHost: a\r\nAccept: {accept}\r\n\r\n".encode())
        if method == "HEAD":
            await until(lambda: b"\r\n\r\n" in self.data)
            return int(self.data.split()[1]), self.data, ""
        return await self.response()


def head_value(head: bytes, name: str) -> str:
    return next(
        line.partition(": ")[2] for line in head.decode().split("\r\n") if line.startswith(f"{name}: ")
    )


class Samples(dict[str, float]):
    """By name and labels, as `name{topic="a"}`; labels are in the order of their names."""

    def of(self, name: str) -> "Samples":
        return Samples((key, value) for key, value in self.items() if key.partition("{")[0] == name)


def samples_in(text: str, *, is_open_metrics: bool = False) -> Samples:
    samples = Samples()
    for family in (parse_open_metrics if is_open_metrics else parse_prometheus)(text):
        for sample in family.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
            key = f"{sample.name}{{{labels}}}" if labels else sample.name
            assert key not in samples, f"{key} is there twice"
            assert not math.isnan(sample.value)
            samples[key] = sample.value
    return samples


async def scrape(bench: Bench) -> Samples:
    client = await HttpClient.connect(bench)
    status, _, text = await client.get()
    client.stream.close()
    assert status == 200
    return samples_in(text)
