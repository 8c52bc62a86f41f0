"""Metrics that clients push (KIP-714): OpenTelemetry's encoding, and what is exposed of them."""

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.metrics import client_series
from ottla.metrics.client_series import ClientSeries, metric_name
from ottla.metrics.otlp import OtlpError, PushedSample, read_metrics, with_resource_attributes


def field(number: int, data: bytes) -> bytes:
    assert len(data) < 128
    return bytes([number << 3 | 2, len(data)]) + data


def attribute(key: str, text: str) -> bytes:
    return field(7, field(1, key.encode()) + field(2, field(1, text.encode())))


def metrics_data(*metrics: bytes) -> bytes:
    scope = b"".join(b"\x12" + length(metric) + metric for metric in metrics)
    resource = b"\x12" + length(scope) + scope
    return b"\x0a" + length(resource) + resource


def length(data: bytes) -> bytes:
    return bytes([len(data) & 0x7F | 0x80, len(data) >> 7])


GAUGE = field(1, b"org.apache.kafka.producer.node.request.latency.avg") + field(
    5, field(1, b"\x21" + struct.pack("<d", 2.5) + attribute("node.id", "1"))
)
SUM = field(1, b"org.apache.kafka.producer.record.send.total") + field(
    7, field(1, b"\x31" + struct.pack("<q", 7)) + b"\x10\x01\x18\x01"
)


def test_gauges_and_sums_are_read() -> None:
    assert read_metrics(metrics_data(GAUGE, SUM)) == [
        PushedSample(
            "org.apache.kafka.producer.node.request.latency.avg",
            (("node.id", "1"),),
            2.5,
            is_counter=False,
            is_delta=False,
        ),
        PushedSample("org.apache.kafka.producer.record.send.total", (), 7, is_counter=True, is_delta=True),
    ]


def test_attributes_of_the_resource_are_added() -> None:
    data = with_resource_attributes(metrics_data(GAUGE), {"client_id": "app"})
    assert b"client_id" in data
    assert read_metrics(data) == read_metrics(metrics_data(GAUGE))


@pytest.mark.parametrize("number", [4, 6])
def test_a_value_with_another_length_is_an_error(number: int) -> None:
    point = field(1, field(number, b"abc"))
    with pytest.raises(OtlpError):
        read_metrics(metrics_data(field(1, b"name") + field(5, point)))


@given(st.data())
def test_damaged_bytes_are_read_or_an_error_and_nothing_else(data: st.DataObject) -> None:
    damaged = bytearray(metrics_data(GAUGE, SUM))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(OtlpError):
        read_metrics(bytes(damaged))


@pytest.mark.parametrize("size", range(1, len(metrics_data(GAUGE))))
def test_a_part_of_the_bytes_is_an_error_and_nothing_else(size: int) -> None:
    with pytest.raises(OtlpError):
        read_metrics(metrics_data(GAUGE)[:size])


def test_deltas_are_added_up_and_old_clients_are_forgotten() -> None:
    series = ClientSeries()
    for now_ms in (0, 1000):
        series.add("i", "app", read_metrics(metrics_data(GAUGE, SUM)), 1000, now_ms)
    own = 'client_id="app",client_instance_id="i"'
    assert dict(series.items()) == {
        (
            "org_apache_kafka_producer_node_request_latency_avg",
            f'{{node_id="1",{own}}}',
        ): 2.5,
        ("org_apache_kafka_producer_record_send_total", f"{{{own}}}"): 14,
    }
    series.expire(3999)
    assert series.clients == 1
    series.expire(4000)
    assert (series.clients, series.items(), series.families) == (0, [], {})


def test_clients_and_series_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_series, "CLIENTS_MAX", 2)
    monkeypatch.setattr(client_series, "SERIES_PER_CLIENT_MAX", 3)
    series = ClientSeries()
    samples = [PushedSample(f"m{n}", (), 1, is_counter=False, is_delta=False) for n in range(5)]
    for instance in "abc":
        series.add(instance, "app", samples, 1000, 0)
    assert (series.clients, len(series.items()), series.dropped) == (2, 6, 2 + 2 + 5)


def test_a_metric_keeps_its_type() -> None:
    series = ClientSeries()
    series.add("a", "app", [PushedSample("m.total", (), 1, is_counter=True, is_delta=True)], 1000, 0)
    series.add("a", "app", [PushedSample("m.total", (), 9, is_counter=False, is_delta=False)], 1000, 0)
    assert sorted(name for (name, _), _ in series.items()) == ["m_count_now", "m_total"]


@pytest.mark.parametrize(
    ("name", "is_counter", "expected"),
    [
        (
            "org.apache.kafka.consumer.poll.idle.ratio.avg",
            False,
            "org_apache_kafka_consumer_poll_idle_ratio_avg",
        ),
        ("org.apache.kafka.x", True, "org_apache_kafka_x_total"),
        ("9 Lives", False, "_9_lives"),
        ("", False, "unnamed"),
    ],
)
def test_names(name: str, is_counter: bool, expected: str) -> None:
    assert metric_name(name, is_counter=is_counter) == expected
