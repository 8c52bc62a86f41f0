"""The text formats, as Prometheus' own parsers read them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open_metrics
from prometheus_client.parser import text_string_to_metric_families as parse_prometheus

from ottla.metrics import (
    OPEN_METRICS,
    PROMETHEUS,
    Family,
    FamilyError,
    Histogram,
    Kind,
    TextFormat,
    check_families,
    choose_format,
    labels,
    line,
)

# Prometheus' parsers take other line ends in a label for the end of the line; so may Prometheus.
TEXT = st.text(st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp")) | st.sampled_from('\\"\n{},= '))
COUNTER = Family("a_messages_total", Kind.COUNTER, 'Messages, "quoted" \\ and\nin lines.', ("topic",))
GAUGE = Family("a_size", Kind.GAUGE, "A size.")
TIMES = Family("a_seconds", Kind.HISTOGRAM, "Times.", ("request",))


def parsed(text_format: TextFormat, family: Family, samples: str) -> list:
    text = text_format.header(family) + samples + text_format.end
    parse = parse_open_metrics if text_format is OPEN_METRICS else parse_prometheus
    return list(parse(text))


@pytest.mark.parametrize("text_format", [PROMETHEUS, OPEN_METRICS])
@given(value=TEXT)
def test_a_label_keeps_every_character(text_format: TextFormat, value: str) -> None:
    (family,) = parsed(text_format, COUNTER, line(COUNTER.name, labels(topic=value), 1))
    assert family.samples[0].labels == {"topic": value}


@pytest.mark.parametrize("text_format", [PROMETHEUS, OPEN_METRICS])
@pytest.mark.parametrize("value", [0, -1, 2**53, 0.1, 1e-9, 1e300, math.inf, -math.inf])
def test_a_value_is_read_as_it_was_written(text_format: TextFormat, value: float) -> None:
    (family,) = parsed(text_format, GAUGE, line(GAUGE.name, "", value))
    assert (family.name, family.type, family.samples[0].value) == ("a_size", "gauge", value)


@pytest.mark.parametrize("text_format", [PROMETHEUS, OPEN_METRICS])
def test_nan_is_read_as_nan(text_format: TextFormat) -> None:
    (family,) = parsed(text_format, GAUGE, line(GAUGE.name, "", math.nan))
    assert math.isnan(family.samples[0].value)


@pytest.mark.parametrize("text_format", [PROMETHEUS, OPEN_METRICS])
def test_a_counter_keeps_its_name_type_and_meaning(text_format: TextFormat) -> None:
    (family,) = parsed(text_format, COUNTER, line(COUNTER.name, labels(topic="a"), 7))
    assert family.type == "counter"
    assert family.documentation == "Messages, 'quoted' \\ and\nin lines."
    assert [(sample.name, sample.value) for sample in family.samples] == [("a_messages_total", 7)]


@pytest.mark.parametrize("text_format", [PROMETHEUS, OPEN_METRICS])
def test_a_histogram_has_cumulative_buckets(text_format: TextFormat) -> None:
    histogram = Histogram((10, 20, 500))
    for value in (0, 10, 11, 20, 21, 501, 9_999):
        histogram.observe(value)
    (family,) = parsed(text_format, TIMES, histogram.lines(TIMES.name, labels(request="Fetch"), 10))
    assert family.type == "histogram"
    buckets = {s.labels["le"]: s.value for s in family.samples if s.name == "a_seconds_bucket"}
    assert buckets == {"1.0": 2, "2.0": 4, "50.0": 5, "+Inf": 7}
    others = {s.name: s.value for s in family.samples if s.name != "a_seconds_bucket"}
    assert others == {"a_seconds_count": 7, "a_seconds_sum": 1056.2}
    assert histogram.count == 7


# As Prometheus 3 sends it.
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        ("", PROMETHEUS),
        ("*/*", PROMETHEUS),
        ("text/html,application/xhtml+xml,*/*;q=0.8", PROMETHEUS),
        ("application/json", PROMETHEUS),
        ("application/openmetrics-text", OPEN_METRICS),
        ("Application/OpenMetrics-Text; Version=1.0.0", OPEN_METRICS),
        ("application/openmetrics-text; version=2.0.0, text/plain;q=0.1", PROMETHEUS),
        ("application/openmetrics-text;q=0.1, text/plain", PROMETHEUS),
        ("application/openmetrics-text;q=0, */*;q=0", PROMETHEUS),
        ("application/openmetrics-text;q=nonsense", PROMETHEUS),
        (";;,,=;q==", PROMETHEUS),
        (PROMETHEUS_3, OPEN_METRICS),
    ],
)
def test_the_accept_header_chooses_the_format(accept: str, chosen: TextFormat) -> None:
    assert choose_format(accept) is chosen


@pytest.mark.parametrize(
    "families",
    [
        (Family("a b", Kind.GAUGE, "A."),),
        (Family("a", Kind.GAUGE, "A.", ("le-gume",)),),
        (Family("a", Kind.COUNTER, "A."),),
        (Family("a_total", Kind.GAUGE, "A."),),
        (Family("a", Kind.GAUGE, "A"),),
        (GAUGE, GAUGE),
        (Family("a", Kind.GAUGE, "A."), Family("a_total", Kind.COUNTER, "A.")),
    ],
)
def test_invalid_and_equal_families_are_rejected(families: tuple[Family, ...]) -> None:
    with pytest.raises(FamilyError):
        check_families(families)
