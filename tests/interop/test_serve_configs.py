"""Configs of a real broker process: each is rejected by name, or has its documented effect."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.interop.brokers import run_ottla
from tests.interop.librdkafka import create_topic, flush, read_records
from tests.interop.wire import WireClient, request

API_VERSIONS = 18
REFUSED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "create.topic.policy.class.name": "a.Policy",
    "alter.config.policy.class.name": "a.Policy",
    "config.providers": "file",
    "ssl.keystore.location": "/keys",
    "super.users": "User:admin",
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_broker_with_unsupported_security_configs_does_not_start(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ottla.cli.main", "serve", "--data", str(tmp_path / "data")]
    done = subprocess.run(
        [*command, "--listen", "127.0.0.1:0", "--set", f"{name}={REFUSED[name]}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert f"{name} is set, but " in done.stderr
    assert "Remove it" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_connection_stays_open_if_the_idle_time_is_negative(tmp_path: Path) -> None:
    with (
        run_ottla(tmp_path / "data", set={"connections.max.idle.ms": "-1"}) as broker,
        WireClient(broker.bootstrap, timeout_s=0.5) as client,
    ):
        client.ask(request(API_VERSIONS, 0, b""))
        with pytest.raises(TimeoutError):  # the end of the stream would come at once
            client.is_closed_by_peer()
        client.ask(request(API_VERSIONS, 0, b""))


def test_many_large_requests_are_served_with_a_small_request_memory(tmp_path: Path) -> None:
    settings = {"socket.request.max.bytes": "1100000", "queued.max.request.bytes": "1100000"}
    with run_ottla(tmp_path / "data", set=settings) as broker:
        topic = create_topic(broker.bootstrap, "journal")

        def produce() -> None:
            producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all", "linger.ms": 50})
            for _ in range(20):
                producer.produce(topic, bytes(400_000), partition=0)
            flush(producer)

        threads = [threading.Thread(target=produce) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(read_records(broker.bootstrap, topic, 120)) == 120


def test_a_preallocated_topic_keeps_its_records_over_a_kill(tmp_path: Path) -> None:
    with run_ottla(tmp_path / "data", set={"log.segment.bytes": "1048576"}) as broker:
        topic = create_topic(broker.bootstrap, "journal", config={"preallocate": "true"})
        producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.num.messages": 1})
        for _ in range(15):
            producer.produce(topic, bytes(200_000), partition=0)
        flush(producer)
        segments = sorted((broker.data_dir / f"{topic}-0").glob("*.log"))
        assert len(segments) > 2
        assert segments[-1].stat().st_size == 1_048_576
        broker.kill()
        broker.start()
        assert len(read_records(broker.bootstrap, topic, 15)) == 15
