"""Options of `format("ottla")`: the names, defaults and errors of Spark's Kafka source."""

import warnings

import pytest

from ottla.model.ids import TopicPartition
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.spark.offsets import EARLIEST, LATEST
from ottla.pipeline.spark.options import IGNORED, KNOWN, Point, ReadOptions, read_options, warn_of_unknown

BASE = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "a"}


def batch(**more: str) -> ReadOptions:
    return read_options({**BASE, **more}, streaming=False)


def stream(**more: str) -> ReadOptions:
    return read_options({**BASE, **more}, streaming=True)


def test_a_batch_starts_at_earliest_and_a_stream_at_latest() -> None:
    assert (batch().start, batch().end) == (Point("end", EARLIEST), Point("end", LATEST))
    assert stream().start == Point("end", LATEST)


def test_the_defaults_are_those_of_sparks_kafka_source() -> None:
    options = stream()
    assert options.extras == (False, False)
    assert options.fail_on_data_loss
    assert not options.read_committed
    assert (options.rows_max, options.rows_min, options.delay_max_s) == (None, None, 900)
    assert (options.partitions_min, options.partition_rows_max) == (1, None)
    assert options.poll_timeout_s == 120


def test_names_of_options_are_read_in_any_case() -> None:
    options = read_options(
        {"KAFKA.bootstrap.servers": "h:1", "SUBSCRIBE": "a, b", "includeheaders": "TRUE"}, streaming=True
    )
    assert options.subscribe == ("a", "b")
    assert options.extras.headers


def test_exactly_one_option_selects_the_topics() -> None:
    servers = {"kafka.bootstrap.servers": "h:1"}
    assigned = read_options({**servers, "assign": '{"a": [2]}'}, streaming=False)
    assert assigned.assign == {TopicPartition("a", 2)}
    assert read_options({**servers, "subscribePattern": "a.*"}, streaming=False).pattern == "a.*"
    with pytest.raises(PipelineError, match="given is none"):
        read_options(servers, streaming=False)
    with pytest.raises(PipelineError, match="`subscribe` and `assign`"):
        batch(assign='{"a": [2]}')


def test_a_time_counts_before_times_and_times_before_offsets() -> None:
    offsets, times = '{"a": {"0": 5}}', '{"a": {"0": 1000}}'
    at = TopicPartition("a", 0)
    assert batch(startingOffsets=offsets).start == Point("offsets", each={at: 5})
    assert batch(startingOffsets=offsets, startingOffsetsByTimestamp=times).start == Point(
        "time", each={at: 1000}
    )
    everything = {"startingOffsets": offsets, "startingOffsetsByTimestamp": times, "startingTimestamp": "77"}
    assert batch(**everything).start == Point("time", 77)
    assert batch(endingOffsets=offsets, endingTimestamp="99").end == Point("time", 99)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"startingOffsets": "latest"}, "cannot start at `latest`"),
        ({"startingOffsets": '{"a": {"0": -1}}'}, "cannot start at `latest`"),
        ({"endingOffsets": "earliest"}, "cannot end at `earliest`"),
        ({"startingOffsets": "first"}, "`startingOffsets` is 'first'"),
        ({"minPartitions": "0"}, "whole number above 0"),
        ({"maxRecordsPerPartition": "0"}, "whole number above 0"),
        ({"maxOffsetsPerTrigger": "many"}, "whole number above 0"),
        ({"includeHeaders": "yes"}, "false, true"),
        ({"failOnDataLoss": "maybe"}, "true, false"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "error, latest"),
        ({"maxTriggerDelay": "soon"}, "such as 500ms"),
        ({"kafka.auto.offset.reset": "earliest"}, "set by the source"),
        ({"kafka.enable.auto.commit": "true"}, "set by the source"),
        ({"subscribe": " , "}, "Name one or more topics"),
    ],
)
def test_an_invalid_option_is_rejected_with_the_reason(given: dict[str, str], said: str) -> None:
    with pytest.raises(PipelineError, match=said):
        batch(**given)


def test_a_stream_has_no_end() -> None:
    with pytest.raises(PipelineError, match=r"`endingOffsets` is for batches"):
        stream(endingOffsets="latest")


def test_an_invalid_pattern_is_rejected() -> None:
    with pytest.raises(PipelineError, match="not a regular expression"):
        read_options({"kafka.bootstrap.servers": "h:1", "subscribePattern": "a("}, streaming=True)


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("30s", 30), ("15m", 900), ("2 h", 7200), ("1min", 60)]
)
def test_a_delay_has_a_unit(text: str, seconds: float) -> None:
    assert stream(maxTriggerDelay=text).delay_max_s == seconds


def test_an_unknown_option_is_warned_of_with_a_suggestion() -> None:
    with pytest.warns(UserWarning, match=r"`includeheader`.*Did you mean `includeHeaders`"):
        warn_of_unknown({**BASE, "includeHeader": "true"}, KNOWN, IGNORED)


def test_options_that_are_known_or_sparks_own_are_not_warned_of() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        given = {**BASE, "failOnDataLoss": "false", "path": "x", "kafka.max.poll.records": "7"}
        warn_of_unknown(given, KNOWN, IGNORED)


def test_plaintext_is_recognized_by_the_security_protocol() -> None:
    assert stream().is_plaintext
    assert stream(**{"kafka.security.protocol": "PLAINTEXT"}).is_plaintext
    assert not stream(**{"kafka.security.protocol": "SASL_PLAINTEXT"}).is_plaintext
