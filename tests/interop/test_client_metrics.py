"""Metrics that librdkafka pushes to a real broker (KIP-714): exposed for Prometheus, and forwarded by OTLP/HTTP."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.interop.brokers import run_ottla
from tests.interop.kio_client import KioClient
from tests.interop.librdkafka import create_topic, wait_until
from tests.interop.test_metrics import scrape

CLIENT_METRICS = 16
INCREMENTAL_ALTER_CONFIGS = 44


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
