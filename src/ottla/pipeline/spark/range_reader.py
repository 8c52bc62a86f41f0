"""Reads a range of offsets: with our own requests if the connection is plaintext, otherwise with librdkafka."""

from collections.abc import Iterator

import pyarrow as pa

from ottla.pipeline.spark.offsets import OffsetRange
from ottla.pipeline.spark.options import ReadOptions
from ottla.pipeline.spark.worker_process import keep_imports


def read_range(options: ReadOptions, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
    """Every record of the range that the isolation level allows, once and in order."""
    # Each reader imports what the other does not need, and a Python worker may start for every task.
    if options.is_plaintext:
        from ottla.pipeline.spark.fetch_reader import fetch_range

        keep_imports()
        return fetch_range(options, wanted)
    from ottla.pipeline.spark.consumer_reader import consume_range

    keep_imports()
    return consume_range(options, wanted)
