"""Sink: its options and columns, and the errors of wrong ones."""

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.spark.sink.columns import check_columns
from ottla.pipeline.spark.sink.options import SinkOptions, sink_options

CLUSTER = {"kafka.bootstrap.servers": "127.0.0.1:9092"}


def test_options_are_read_whatever_their_case() -> None:
    read = sink_options({**CLUSTER, "TOPIC": "out", "keeptimestamps": "TRUE"}, streaming=False)
    assert read == SinkOptions({"bootstrap.servers": "127.0.0.1:9092"}, topic="out", keep_timestamps=True)


def test_a_checked_stream_has_a_sink_id_and_a_plan() -> None:
    read = sink_options(
        {**CLUSTER, "sinkId": "a.b", "planFingerprint": "f", "resetSink": "q"}, streaming=True
    )
    assert (read.sink_id, read.plan, read.reset, read.batch_id) == ("a.b", "f", "q", None)
    assert read.transaction_timeout_s == 120


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"kafka.transactional.id": "x"}, "`kafka.transactional.id` is set by the sink"),
        ({"kafka.enable.idempotence": "false"}, "`kafka.enable.idempotence` is set by the sink"),
        ({"resetSink": "q"}, "`resetSink` is for writing exactly once, and `sinkId` is not given"),
        ({"sinkId": "a b", "batchId": "1"}, "The sink id is 'a b'"),
        ({"sinkId": "a"}, "`batchId` is missing"),
        ({"sinkId": "a", "batchId": "-1"}, "`batchId` is '-1'"),
        ({"keepTimestamps": "yes"}, "`keepTimestamps` is 'yes'"),
    ],
)
def test_an_invalid_option_is_named(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(PipelineError, match=sentence):
        sink_options({**CLUSTER, **options}, streaming=False)


def test_a_stream_that_was_not_checked_is_rejected() -> None:
    with pytest.raises(PipelineError, match="was not checked") as rejected:
        sink_options({**CLUSTER, "sinkId": "a"}, streaming=True)
    assert "exactly_once(df, sink_id)" in rejected.value.remedy


def test_a_stream_counts_its_batches_itself() -> None:
    with pytest.raises(PipelineError, match="`batchId` is for batch writes"):
        sink_options({**CLUSTER, "sinkId": "a", "planFingerprint": "f", "batchId": "1"}, streaming=True)


def test_a_misspelt_option_is_warned_of_with_a_suggestion() -> None:
    with pytest.warns(UserWarning, match="`sinkkid`.*Did you mean `sinkId`"):
        sink_options({**CLUSTER, "sinkkId": "a"}, streaming=True)


TEXT, BYTES, INT = StringType(), BinaryType(), IntegerType()


def schema(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"key": TEXT}, "no column `value`; they have key"),
        ({"value": INT}, "`value` is int, and must be binary or string"),
        ({"value": TEXT, "key": schema(a=INT)}, "`key` is struct<a:int>"),
        ({"value": TEXT, "headers": MapType(TEXT, BYTES)}, "`headers` is map<string,binary>"),
        ({"value": TEXT, "headers": ArrayType(schema(key=TEXT, other=BYTES))}, "`headers` is array"),
        ({"value": TEXT, "partition": TEXT}, "`partition` is string, and must be int"),
        ({"value": TEXT, "timestamp": LongType()}, "`timestamp` is bigint"),
        ({"value": TEXT, "topic": BYTES}, "`topic` is binary"),
    ],
)
def test_a_column_of_the_wrong_type_is_named(columns: dict[str, DataType], sentence: str) -> None:
    with pytest.raises(PipelineError, match=sentence):
        check_columns(schema(**columns), has_topic=True)


def test_rows_need_a_topic_as_option_or_column() -> None:
    check_columns(schema(value=TEXT, topic=TEXT), has_topic=False)
    with pytest.raises(PipelineError, match="have no topic"):
        check_columns(schema(value=TEXT), has_topic=False)


def test_the_rows_of_a_topic_can_be_written_as_they_are_read() -> None:
    rows = schema(
        key=BYTES,
        value=BYTES,
        topic=TEXT,
        partition=INT,
        offset=LongType(),
        timestamp=TimestampType(),
        timestampType=INT,
        headers=ArrayType(schema(key=TEXT, value=BYTES)),
    )
    check_columns(rows, has_topic=False)
