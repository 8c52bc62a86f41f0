"""Metrics that librdkafka pushes to a real broker (KIP-714): exposed for Prometheus, and forwarded by OTLP/HTTP.

Kafka's own tool changes the subscriptions.
"""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.interop.brokers import RunningBroker, run_ottla
from tests.interop.kafka_tools import Tools
from tests.interop.kio_client import KioClient
from tests.interop.librdkafka import create_topic, wait_until
from tests.interop.test_metrics import scrape

CLIENT_METRICS = 16
INCREMENTAL_ALTER_CONFIGS = 44
TOOL = "org.apache.kafka.tools.ClientMetricsCommand"


@pytest.fixture
def collector() -> Iterator[tuple[str, list[bytes]]]:
    """The URL of an OTLP/HTTP receiver, and the bodies that it got."""
    received: list[bytes] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *values: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Receiver) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1/metrics", received
        server.shutdown()
        thread.join()


def test_metrics_of_librdkafka(tmp_path: Path, collector: tuple[str, list[bytes]]) -> None:
    url, received = collector
    configs = {"ottla.metrics.address": "127.0.0.1:0", "ottla.telemetry.otlp.url": url}
    with run_ottla(tmp_path / "data", set=configs) as broker:
        create_topic(broker.bootstrap, "orders")
        settings = {"metrics": "*", "interval.ms": "1000"}
        changes = [{"name": name, "config_operation": 0, "value": value} for name, value in settings.items()]
        resource = {"resource_type": CLIENT_METRICS, "resource_name": "all", "configs": changes}
        client = KioClient(broker.bootstrap)
        client.ask(INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False)
        client.close()
        producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "app"})

        def is_exposed() -> bool:
            producer.produce("orders", b"x")
            producer.poll(0.1)
            samples = scrape(broker).get("org_apache_kafka_producer_request_latency_avg", {})
            return any(client_id == "app" for client_id, *_ in samples)

        wait_until(is_exposed, "the metrics of the producer are exposed")
        wait_until(lambda: bool(received), "the push is forwarded")
        assert any(
            b"org.apache.kafka.producer." in body and b"client_instance_id" in body for body in received
        )
        scrape(broker, as_open_metrics=True)  # its parser is stricter
        producer.flush(10)


@pytest.mark.contract
@pytest.mark.java
def test_kafkas_tool_creates_lists_alters_and_deletes_a_subscription(
    kafka_libs: Path, broker: RunningBroker, topic_name: str
) -> None:
    name = topic_name  # of the subscription: no client has this id
    tools = Tools(kafka_libs, broker.bootstrap)

    def described() -> dict[str, str]:
        lines = [line.strip() for line in tools(TOOL, "--describe", "--name", name).splitlines()]
        return dict(line.split("=", 1) for line in lines if "=" in line)

    def is_listed() -> bool:
        return name in tools(TOOL, "--list").splitlines()

    matching = ("--match", f"client_id={name}")
    tools(TOOL, "--alter", "--name", name, "--metrics", "org.apache.kafka.", "--interval", "5000", *matching)
    wait_until(is_listed, "the subscription is listed")
    created = {"metrics": "org.apache.kafka.", "interval.ms": "5000", "match": f"client_id={name}"}
    assert created.items() <= described().items()
    tools(TOOL, "--alter", "--name", name, "--interval", "60000")
    wait_until(lambda: described().get("interval.ms") == "60000", "the interval is altered")
    assert (created | {"interval.ms": "60000"}).items() <= described().items()
    tools(TOOL, "--delete", "--name", name)
    wait_until(lambda: not is_listed(), "the subscription is deleted")
