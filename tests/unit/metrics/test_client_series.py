"""Metrics that clients push (KIP-714): OpenTelemetry's encoding, and what is exposed of them."""

import contextlib
import struct
from sys import getsizeof

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.metrics import check_families, client_series
from ottla.metrics.client_series import ClientSeries, metric_name, series_of
from ottla.metrics.otlp import (
    FIELDS_MAX,
    LABEL_BYTES_MAX,
    LABELS_MAX,
    NAME_BYTES_MAX,
    RESOURCES_MAX,
    SAMPLES_MAX,
    OtlpError,
    PushedMetrics,
    PushedSample,
    read_metrics,
    with_resource_attributes,
)


def field(number: int, data: bytes) -> bytes:
    return bytes([number << 3 | 2]) + length(data) + data


def attribute(key: str, text: str) -> bytes:
    return field(7, field(1, key.encode()) + field(2, field(1, text.encode())))


def metrics_data(*metrics: bytes) -> bytes:
    scope = b"".join(field(2, metric) for metric in metrics)
    return field(1, field(2, scope))


def length(data: bytes) -> bytes:
    left, encoded = len(data), b""
    while left > 0x7F:
        encoded += bytes([left & 0x7F | 0x80])
        left >>= 7
    return encoded + bytes([left])


def gauge(name: str, *attributes: bytes, points: int = 1) -> bytes:
    point = field(1, b"\x21" + struct.pack("<d", 2.5) + b"".join(attributes))
    return field(1, name.encode()) + field(5, point * points)


GAUGE = field(1, b"org.apache.kafka.producer.node.request.latency.avg") + field(
    5, field(1, b"\x21" + struct.pack("<d", 2.5) + attribute("node.id", "1"))
)
SUM = field(1, b"org.apache.kafka.producer.record.send.total") + field(
    7, field(1, b"\x31" + struct.pack("<q", 7)) + b"\x10\x01\x18\x01"
)


def pushed(*samples: PushedSample) -> PushedMetrics:
    return PushedMetrics(list(samples), 0, frozenset())


def add(
    series: ClientSeries,
    metrics: PushedMetrics,
    instance_id: str = "i",
    client_id: str = "app",
    interval_ms: int = 1000,
    now_ms: int = 0,
) -> set[str]:
    return series.add(series_of(metrics, instance_id, client_id), interval_ms, now_ms)


def test_gauges_and_sums_are_read() -> None:
    assert read_metrics(metrics_data(GAUGE, SUM)) == (
        [
            PushedSample(
                "org.apache.kafka.producer.node.request.latency.avg",
                (("node.id", "1"),),
                2.5,
                is_counter=False,
                is_delta=False,
            ),
            PushedSample(
                "org.apache.kafka.producer.record.send.total", (), 7, is_counter=True, is_delta=True
            ),
        ],
        0,
        frozenset(),
    )


def test_attributes_of_the_resource_are_added() -> None:
    data = with_resource_attributes(metrics_data(GAUGE), {"client_id": "app"})
    assert b"client_id" in data
    assert read_metrics(data) == read_metrics(metrics_data(GAUGE))


def resource_metrics(resource: bytes, *metrics: bytes) -> bytes:
    return field(1, field(1, resource) + b"".join(field(2, field(2, metric)) for metric in metrics))


def test_metrics_of_the_same_resource_get_its_attributes_once() -> None:
    """The Java client sends one ResourceMetrics for each metric, with the same resource."""
    rack = field(1, field(1, b"client_rack") + field(2, field(1, b"r1")))
    zone = field(1, field(1, b"zone") + field(2, field(1, b"z1")))
    pushed_data = resource_metrics(rack, GAUGE) + resource_metrics(zone, GAUGE) + resource_metrics(rack, SUM)
    own = field(1, field(1, b"client_id") + field(2, field(1, b"app")))
    assert with_resource_attributes(pushed_data, {"client_id": "app"}) == (
        resource_metrics(rack + own, GAUGE, SUM) + resource_metrics(zone + own, GAUGE)
    )


def test_the_url_of_a_schema_is_kept() -> None:
    data = with_resource_attributes(
        field(1, field(2, b"") + field(3, b"https://schema")), {"client_id": "app"}
    )
    assert data.endswith(field(3, b"https://schema"))


ATTRIBUTES = {f"label_{number}": "x" * LABEL_BYTES_MAX for number in range(6)}
# Each resource is framed anew: three tags and lengths beside the attributes.
GROWTH_MAX = RESOURCES_MAX * (sum(len(name) + len(value) + 20 for name, value in ATTRIBUTES.items()) + 30)

resources = st.builds(
    lambda resource, scopes, schema: field(
        1, field(1, resource) + b"".join(field(2, scope) for scope in scopes) + schema
    ),
    st.sampled_from([b"", field(1, b""), field(1, field(1, b""))]),
    st.lists(st.binary(max_size=200), max_size=3),
    st.sampled_from([b"", field(3, b"schema")]),
)


# Fields with the right number and another type, which are shorter than a message of the same bytes.
fixed = st.sampled_from([field(1, bytes([number << 3 | 1]) + bytes(8)) for number in (1, 2, 3)])


@given(st.lists(resources | fixed | st.just(field(1, b""))), st.integers(1, 500))
def test_a_forwarded_push_is_longer_by_a_constant_only(messages: list[bytes], times: int) -> None:
    data = b"".join(messages) * times
    with contextlib.suppress(OtlpError):
        forwarded = with_resource_attributes(data, ATTRIBUTES)
        assert len(forwarded) <= len(data) + GROWTH_MAX


def test_a_megabyte_of_empty_resources_is_not_forwarded_a_thousand_times_larger() -> None:
    empty = field(1, b"")
    assert len(with_resource_attributes(empty * FIELDS_MAX, ATTRIBUTES)) < GROWTH_MAX
    with pytest.raises(OtlpError, match=f"more than {FIELDS_MAX} fields"):
        with_resource_attributes(empty * (1 << 19), ATTRIBUTES)


def test_a_push_of_many_resources_is_not_forwarded() -> None:
    data = b"".join(resource_metrics(bytes([10, 1, n])) for n in range(RESOURCES_MAX + 1))
    with pytest.raises(OtlpError, match=f"more than {RESOURCES_MAX} resources in a push"):
        with_resource_attributes(data, ATTRIBUTES)


@given(st.data())
def test_damaged_bytes_are_forwarded_or_an_error_and_nothing_else(data: st.DataObject) -> None:
    damaged = bytearray(metrics_data(GAUGE) + resource_metrics(b"", SUM))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(OtlpError):
        with_resource_attributes(bytes(damaged), ATTRIBUTES)


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


@pytest.mark.parametrize(
    ("metric", "limit"),
    [
        (gauge("n" * (NAME_BYTES_MAX + 1)), "255 bytes in a name"),
        (gauge("m", *[attribute(str(n), "") for n in range(LABELS_MAX + 1)]), "16 labels"),
        (gauge("m", attribute("k" * (LABEL_BYTES_MAX + 1), "")), "255 bytes in the name or value of a label"),
        (
            gauge("m", attribute("k", "v" * (LABEL_BYTES_MAX + 1))),
            "255 bytes in the name or value of a label",
        ),
    ],
)
def test_a_sample_beyond_a_limit_is_dropped_and_counted_and_the_others_are_read(
    metric: bytes, limit: str
) -> None:
    samples, dropped, limits = read_metrics(metrics_data(metric, GAUGE))
    assert [sample.name for sample in samples] == ["org.apache.kafka.producer.node.request.latency.avg"]
    assert dropped == 1
    assert [limit in text for text in limits] == [True]


def test_a_sample_at_the_limits_is_read() -> None:
    labels = [
        attribute("k" * (LABEL_BYTES_MAX - 2) + f"{n:02}", "v" * LABEL_BYTES_MAX) for n in range(LABELS_MAX)
    ]
    ((sample,), dropped, _) = read_metrics(metrics_data(gauge("n" * NAME_BYTES_MAX, *labels)))
    assert (len(sample.name), len(sample.labels), dropped) == (NAME_BYTES_MAX, LABELS_MAX, 0)


@pytest.mark.parametrize("name", ["m", "n" * 500_000])
def test_a_push_is_read_up_to_its_limit_of_samples(name: str) -> None:
    samples, dropped, limits = read_metrics(metrics_data(gauge(name, points=45_000), b"not read"))
    assert len(samples) + dropped == SAMPLES_MAX + 1
    assert len(samples) == (SAMPLES_MAX if name == "m" else 0)
    assert f"more than {SAMPLES_MAX} samples in a push" in limits


@pytest.mark.parametrize(
    "data",
    [field(1, b"") * (FIELDS_MAX + 1), metrics_data(gauge("m", points=2 * FIELDS_MAX))],
    ids=["resources", "points"],
)
def test_a_push_is_read_up_to_its_limit_of_fields(data: bytes) -> None:
    limits = frozenset({f"more than {FIELDS_MAX} fields in a push"})
    assert read_metrics(data) == PushedMetrics([], 1, limits)


def test_what_a_push_has_exceeded_is_counted_with_its_series() -> None:
    series = ClientSeries()
    long = gauge("n" * (NAME_BYTES_MAX + 1))
    assert add(series, read_metrics(metrics_data(long, GAUGE))) == {"more than 255 bytes in a name"}
    assert (len(series.items()), series.dropped) == (1, 1)


def test_labels_in_another_order_are_the_same_series() -> None:
    series = ClientSeries()
    for names in ("ab", "ba"):
        sample = PushedSample("m", tuple((name, "x") for name in names), 1, is_counter=True, is_delta=True)
        add(series, pushed(sample, sample))
    (((_, labels_text), value),) = series.items()
    assert (labels_text, value) == ('{a="x",b="x",client_id="app",client_instance_id="i"}', 4)


def test_a_client_cannot_forge_the_labels_of_another() -> None:
    series = ClientSeries()
    forged = (("client.id", "admin"), ("client_instance_id", "j"), ("Client-Id", "root"))
    add(series, pushed(PushedSample("m", forged, 1, is_counter=False, is_delta=False)))
    assert dict(series.items()) == {("m", '{client_id="app",client_instance_id="i"}'): 1}


def test_deltas_are_added_up_and_old_clients_are_forgotten() -> None:
    series = ClientSeries()
    for now_ms in (0, 1000):
        add(series, read_metrics(metrics_data(GAUGE, SUM)), now_ms=now_ms)
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
        add(series, pushed(*samples), instance)
    assert (series.clients, len(series.items()), series.dropped) == (2, 6, 2 + 2 + 5)


def gauges(*names: str, label: str = "") -> PushedMetrics:
    labels = (("label", label),)
    return pushed(*[PushedSample(name, labels, 1, is_counter=False, is_delta=False) for name in names])


def test_the_bytes_of_names_and_labels_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_series, "BYTES_MAX", 10_000)
    series = ClientSeries()
    names = [f"m{n}" for n in range(40)]
    assert add(series, gauges(*names, label="x" * 1000)) == {"more than 10000 bytes of names and labels"}
    kept = len(series.items())
    assert kept == len(series.families) < 10
    assert series.dropped == 40 - kept
    text = sum(len(name) + len(labels) for (name, labels), _ in series.items())
    assert 9_000 < text + 100 * kept < 11_000
    assert add(series, gauges(names[0], label="x" * 1000)) == set()  # has its room already
    assert add(series, gauges("short"), "j") == set()
    series.expire(3000)
    assert add(series, gauges(*names[:kept], label="x" * 1000), now_ms=3000) == set()


def test_text_that_takes_more_memory_counts_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python needs four bytes for each character of a text with one beyond the basic plane."""
    monkeypatch.setattr(client_series, "BYTES_MAX", 1000)
    series = ClientSeries()
    assert add(series, gauges("m", label="x" * 255)) == set()
    series.expire(3000)
    assert len(add(series, gauges("m", label="x" * 254 + "\U0001f600"), now_ms=3000)) == 1


def test_a_push_makes_room_of_clients_that_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody may scrape: metrics may be forwarded only."""
    monkeypatch.setattr(client_series, "CLIENTS_MAX", 2)
    series = ClientSeries()
    for now_ms, instance in ((0, "a"), (1000, "b"), (3000, "c")):
        assert add(series, gauges("m"), instance, now_ms=now_ms) == set()
    assert (series.clients, len(series.items()), series.dropped) == (2, 2, 0)


def test_a_name_that_no_client_has_any_more_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_series, "FAMILIES_MAX", 2)
    series = ClientSeries()
    add(series, gauges("shared", "old"), "a")
    add(series, gauges("shared"), "b", now_ms=1000)
    assert add(series, gauges("new"), "b", now_ms=1000) == {"more than 2 names"}
    assert add(series, gauges("new"), "b", now_ms=3000) == set()
    assert series.families.keys() == {"shared", "new"}


def test_a_sample_without_room_makes_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_series, "SERIES_PER_CLIENT_MAX", 1)
    series = ClientSeries()
    add(series, gauges("a", "b"))
    assert series.families.keys() == {"a"}


@pytest.mark.parametrize("is_counter", [False, True])
@pytest.mark.parametrize(
    "name",
    [
        "kafka.controller.kafkacontroller.offlinepartitionscount",
        "ottla_request_duration_seconds_bucket",
        "Process CPU seconds",
        "scrape_duration_seconds",
    ],
)
def test_a_client_cannot_forge_metrics_of_the_broker(name: str, is_counter: bool) -> None:
    series = ClientSeries()
    sample = PushedSample(name, (), 1, is_counter=is_counter, is_delta=False)
    assert add(series, pushed(sample)) == {"a name of the broker's own metrics"}
    assert (series.items(), series.families, series.dropped) == ([], {}, 1)


def test_a_client_cannot_forge_whether_the_broker_can_be_scraped() -> None:
    series = ClientSeries()
    assert add(series, gauges("up")) == {"a name of the broker's own metrics"}
    assert series.items() == []


@pytest.mark.parametrize("is_counter", [False, True])
def test_a_counter_and_a_gauge_of_the_same_name_are_not_both_exposed(is_counter: bool) -> None:
    series = ClientSeries()
    for kind in (is_counter, not is_counter):
        add(series, pushed(PushedSample("m", (), 1, is_counter=kind, is_delta=False)))
    check_families(series.families.values())
    assert (len(series.families), series.dropped) == (1, 1)


names = st.sampled_from(["m", "m.total", "n", "kafka.n", "long" * 20])
samples = st.builds(
    PushedSample,
    names,
    st.lists(st.tuples(names, st.text(max_size=5)), max_size=2).map(tuple),
    st.floats(0, 10),
    st.booleans(),
    st.booleans(),
)
pushes = st.tuples(st.sampled_from("abcd"), st.lists(samples, max_size=6), st.integers(0, 3000))


@given(st.lists(pushes, max_size=30))
def test_limits_hold_and_what_is_counted_is_there(steps: list[tuple[str, list[PushedSample], int]]) -> None:
    limits = {
        "CLIENTS_MAX": 3,
        "SERIES_MAX": 8,
        "SERIES_PER_CLIENT_MAX": 4,
        "FAMILIES_MAX": 3,
        "BYTES_MAX": 1800,
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in limits.items():
            patch.setattr(client_series, name, value)
        series, now_ms = ClientSeries(), 0
        for instance, pushed_samples, wait_ms in steps:
            now_ms += wait_ms
            add(series, pushed(*pushed_samples), instance, now_ms=now_ms)
            items = series.items()
            assert series.clients <= 3
            assert len(items) == series._series <= 8
            assert (
                sum(getsizeof(name) + getsizeof(labels) for (name, labels), _ in items)
                == series._size
                <= 1800
            )
            assert {name for (name, _), _ in items} == series.families.keys()
            assert len(series.families) <= 3
            check_families(series.families.values())
        series.expire(now_ms + 3000)
        assert (series.items(), series.families, series._series, series._size) == ([], {}, 0, 0)


def test_a_metric_keeps_its_type() -> None:
    series = ClientSeries()
    add(series, pushed(PushedSample("m.total", (), 1, is_counter=True, is_delta=True)))
    add(series, pushed(PushedSample("m.total", (), 9, is_counter=False, is_delta=False)))
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
