"""The metrics of a real broker process, after the work of a real client, as Prometheus' parsers read them."""

import re
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open_metrics
from prometheus_client.parser import text_string_to_metric_families as parse_prometheus
from tests.interop.brokers import RunningBroker, run_ottla
from tests.interop.librdkafka import create_topic, produce_values, read_records, wait_until

Samples = dict[
    str, dict[tuple[str, ...], float]
]  # by name, then by the values of the labels, in order of the labels


@pytest.fixture(scope="module")
def metered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    data = tmp_path_factory.mktemp("metered") / "data"
    with run_ottla(data, set={"ottla.metrics.address": "127.0.0.1:0"}) as broker:
        yield broker


def url_of(broker: RunningBroker) -> str:
    found = re.findall(r"^metrics (http://\S+/metrics)$", broker.log_text(), re.MULTILINE)
    assert found, "the address is not printed before the line ready"
    return str(found[-1])


def scrape(broker: RunningBroker, *, as_open_metrics: bool = False) -> Samples:
    accept = "application/openmetrics-text" if as_open_metrics else "text/plain"
    request = urllib.request.Request(url_of(broker), headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=30) as response:
        assert response.headers["Content-Type"].startswith(accept)
        text = response.read().decode()
    samples: Samples = {}
    for family in (parse_open_metrics if as_open_metrics else parse_prometheus)(text):
        for sample in family.samples:
            labels = tuple(sample.labels[name] for name in sorted(sample.labels))
            samples.setdefault(sample.name, {})[labels] = sample.value
    return samples


@pytest.mark.parametrize("as_open_metrics", [False, True])
def test_records_offsets_and_lag_of_a_real_client(metered: RunningBroker, as_open_metrics: bool) -> None:
    topic, group = f"orders-{as_open_metrics}", f"readers-{as_open_metrics}"
    create_topic(metered.bootstrap, topic, partitions=2)
    before = scrape(metered)["kafka_server_brokertopicmetrics_messagesin_total"][()]
    produce_values(metered.bootstrap, topic, [b"x"] * 30)
    read_records(metered.bootstrap, topic, 30, partitions=range(2))
    consumer = Consumer({"bootstrap.servers": metered.bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
    consumer.close()
    samples = scrape(metered, as_open_metrics=as_open_metrics)
    assert samples["kafka_server_brokertopicmetrics_messagesin_total"][(topic,)] == 30
    assert samples["kafka_server_brokertopicmetrics_messagesin_total"][()] >= before + 30
    assert samples["kafka_server_brokertopicmetrics_bytesout_total"][(topic,)] >= 30
    ends = [samples["kafka_topic_partition_current_offset"][(str(n), topic)] for n in range(2)]
    assert sum(ends) == 30
    assert samples["kafka_consumergroup_current_offset"][(group, "0", topic)] == 3
    assert samples["kafka_consumergroup_lag"][(group, "0", topic)] == max(0, ends[0] - 3)
    assert samples["kafka_topic_partitions"][(topic,)] == 2
    produced = samples["kafka_network_requestmetrics_requests_total"]
    assert sum(count for (request, _), count in produced.items() if request == "Produce") > 0
    assert 0 < samples["process_resident_memory_bytes"][()] < 2**40
    assert samples["process_open_fds"][()] > 4
    assert samples["ottla_event_loop_longest_turn_seconds"][()] > 0


def test_members_of_a_group(metered: RunningBroker) -> None:
    create_topic(metered.bootstrap, "watched")
    consumer = Consumer({"bootstrap.servers": metered.bootstrap, "group.id": "watchers"})
    consumer.subscribe(["watched"])

    def has_joined() -> bool:
        consumer.poll(0.1)
        return scrape(metered).get("kafka_consumergroup_members", {}).get(("watchers",)) == 1

    try:
        wait_until(has_joined, "the group has a member")
    finally:
        consumer.close()
    wait_until(
        lambda: scrape(metered)["kafka_consumergroup_members"][("watchers",)] == 0, "the member has left"
    )


def test_another_path_is_an_error(metered: RunningBroker) -> None:
    with pytest.raises(urllib.error.HTTPError) as raised:
        urllib.request.urlopen(url_of(metered).replace("/metrics", "/"), timeout=30)
    with raised.value as response:
        assert response.code == 404
        assert response.read() == b"There is no /. Ask for /metrics.\n"


def test_a_broken_client_does_not_end_the_endpoint(metered: RunningBroker) -> None:
    host, port = url_of(metered).removeprefix("http://").removesuffix("/metrics").split(":")
    for data in (b"", b"\x16\x03\x01\x00\xa5", b"GET /metrics HTTP/1.1\r\n\r\n", b"x" * 100_000):
        with socket.create_connection((host, int(port)), timeout=30) as client:
            client.sendall(data)
    assert scrape(metered)["kafka_brokers"][()] == 1
    assert "Traceback" not in metered.log_text()


def serve(tmp_path: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "ottla.cli.main", "serve", "--data", str(tmp_path / "data")]
    return subprocess.run(
        [*command, "--listen", "127.0.0.1:0", *options],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = serve(tmp_path, "--metrics", address)
    assert done.returncode == 2
    assert f"--metrics cannot listen on {address}: Address already in use. Choose another" in done.stderr
    assert "Traceback" not in done.stderr
    assert "ready" not in done.stdout


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "example.org:9404"])
def test_an_address_that_others_reach_must_be_asked_for(tmp_path: Path, address: str) -> None:
    done = serve(tmp_path, "--metrics", address)
    assert done.returncode == 2
    assert f"--metrics {address}: other machines may reach this address" in done.stderr
    assert "--metrics-remote" in done.stderr


@pytest.mark.parametrize("address", ["9404", "127.0.0.1", "127.0.0.1:http", "127.0.0.1:70000", ":9404"])
def test_an_address_that_is_none_is_rejected(tmp_path: Path, address: str) -> None:
    done = serve(tmp_path, "--metrics", address)
    assert done.returncode == 2
    assert "Give HOST:PORT" in done.stderr
