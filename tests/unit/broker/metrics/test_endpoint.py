"""The HTTP endpoint of the metrics: formats, errors, and clients that are slow or hostile. Time is virtual."""

import asyncio

from prometheus_client.parser import text_string_to_metric_families as parse_prometheus
from tests.unit.broker.broker_bench import Bench, on_broker, until
from tests.unit.broker.metrics.metrics_bench import (
    HttpClient,
    head_value,
    on_metered_broker,
    samples_in,
    scrape,
)

from ottla.broker.metrics import endpoint
from ottla.broker.metrics.catalog import FAMILIES
from ottla.metrics import Collection, Collector, Family, Kind

NAMES = {family.name for family in FAMILIES}


def connections(bench: Bench) -> int:
    assert bench.broker.metrics is not None
    return bench.broker.metrics._endpoint.connections


async def closed(client: HttpClient) -> None:
    await until(lambda: client.is_closed)


@on_metered_broker()
async def test_both_formats_have_the_same_samples(bench: Bench) -> None:
    await bench.create("a", partitions=3)
    plain = await (await HttpClient.connect(bench)).get(accept="text/plain")
    opened = await (await HttpClient.connect(bench)).get(accept="application/openmetrics-text; version=1.0.0")
    assert head_value(plain[1], "Content-Type") == "text/plain; version=0.0.4; charset=utf-8"
    assert (
        head_value(opened[1], "Content-Type") == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    )
    of_plain, of_opened = samples_in(plain[2]), samples_in(opened[2], is_open_metrics=True)
    assert of_plain.keys() == of_opened.keys()
    assert len(of_plain) > 50


@on_metered_broker()
async def test_every_exposed_metric_is_in_the_catalog_with_its_type_and_labels(bench: Bench) -> None:
    await bench.create("a")
    _, _, text = await (await HttpClient.connect(bench)).get()
    by_name = {family.name: family for family in FAMILIES}
    for exposed in parse_prometheus(text):
        # The parser removes _total from the names of counters.
        family = by_name[f"{exposed.name}_total" if exposed.type == "counter" else exposed.name]
        assert exposed.type == family.kind.value
        for sample in exposed.samples:
            assert set(sample.labels) - {"le", "quantile"} in ({*family.labels}, set()), sample


@on_metered_broker()
async def test_head_has_the_length_of_the_text(bench: Bench) -> None:
    status, head, _ = await (await HttpClient.connect(bench)).get(method="HEAD")
    assert status == 200
    assert int(head_value(head.partition(b"\r\n\r\n")[0], "Content-Length")) > 1000
    assert head.endswith(b"\r\n\r\n")


@on_metered_broker()
async def test_bad_requests_get_an_error_and_the_next_client_is_served(bench: Bench) -> None:
    for request, status in (
        (b"GET / HTTP/1.1\r\n\r\n", 404),
        (b"GET /metrics/../metrics HTTP/1.1\r\n\r\n", 404),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 405),
        (b"\x00\x00\x00\x20 a request of Kafka\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nA: " + b"a" * 10_000, 431),
    ):
        client = await HttpClient.connect(bench)
        client.send(request)
        assert (await client.response())[0] == status, request
        # The client does not close the connection, so the broker does.
        await closed(client)
    assert await scrape(bench)
    await until(lambda: connections(bench) == 0)


@on_metered_broker()
async def test_a_client_that_sends_no_request_is_disconnected(bench: Bench) -> None:
    silent, dripping = await HttpClient.connect(bench), await HttpClient.connect(bench)
    began = asyncio.get_running_loop().time()
    while not dripping.is_closed:
        dripping.send(b"G")
        await asyncio.sleep(1)
    assert asyncio.get_running_loop().time() - began < endpoint.REQUEST_TIMEOUT_S + 2
    assert silent.is_closed
    assert connections(bench) == 0


@on_metered_broker()
async def test_a_client_that_does_not_read_is_disconnected_and_delays_nobody(bench: Bench) -> None:
    await bench.create("a", partitions=1000)  # more text than the window of a connection
    slow = await HttpClient.connect(bench)
    slow.stream.pause_reading()
    slow.send(b"GET /metrics HTTP/1.1\r\n\r\n")
    await until(lambda: connections(bench) == 1)
    assert len((await scrape(bench)).of("kafka_log_log_size")) == 1000
    assert connections(bench) >= 1
    began = asyncio.get_running_loop().time()
    await until(lambda: connections(bench) == 0, every_s=1)
    assert asyncio.get_running_loop().time() - began < endpoint.RESPONSE_TIMEOUT_S + 2


@on_metered_broker()
async def test_many_idle_connections_do_not_keep_prometheus_out(bench: Bench) -> None:
    hostile = [await HttpClient.connect(bench, f"hostile{n}") for n in range(3 * endpoint.CONNECTIONS_MAX)]
    began = asyncio.get_running_loop().time()
    assert await scrape(bench)
    assert asyncio.get_running_loop().time() - began < 1
    await until(lambda: sum(client.is_closed for client in hostile) > 2 * endpoint.CONNECTIONS_MAX)
    assert connections(bench) <= endpoint.CONNECTIONS_MAX


@on_metered_broker()
async def test_many_scrapes_at_once_are_all_served(bench: Bench) -> None:
    clients = [await HttpClient.connect(bench) for _ in range(endpoint.CONNECTIONS_MAX)]
    responses = await asyncio.gather(*(client.get() for client in clients))
    assert [status for status, _, _ in responses] == [200] * endpoint.CONNECTIONS_MAX


@on_metered_broker()
async def test_a_client_that_leaves_during_a_scrape_leaves_nothing_behind(bench: Bench) -> None:
    await bench.create("a", partitions=500)
    client = await HttpClient.connect(bench)
    client.send(b"GET /metrics HTTP/1.1\r\n\r\n")
    client.stream.close()
    await until(lambda: connections(bench) == 0)
    assert await scrape(bench)


class Broken(Collector):
    families = (Family("a", Kind.GAUGE, "A."),)

    async def start(self) -> Collection[None]:
        raise RuntimeError("a bug")


@on_metered_broker()
async def test_an_error_while_collecting_is_a_response(bench: Bench) -> None:
    assert bench.broker.metrics is not None
    bench.broker.metrics.add(Broken())
    status, _, text = await (await HttpClient.connect(bench)).get()
    assert (status, text) == (500, "The metrics cannot be collected. See the broker's log.\n")


@on_broker()
async def test_without_the_config_nothing_is_served_and_nothing_measured(bench: Bench) -> None:
    assert bench.broker.metrics is None
    assert bench.broker.server.dispatch is bench.broker._dispatcher
