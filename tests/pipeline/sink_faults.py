"""Writers that fail where a test wants it, and a stream of numbers to write with them.

Spark's Python processes get all of this by value: they need not find the tests.
"""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark import TaskContext, cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource
from tests.pipeline.written_topics import wait_for

from ottla.pipeline.spark import exactly_once
from ottla.pipeline.spark.source import OttlaDataSource

cloudpickle.register_pickle_by_value(sys.modules[__name__])
cloudpickle.register_pickle_by_value(sys.modules[wait_for.__module__])

ROWS = 20_000
PARTITIONS = 4
# several Arrow batches for each task, so that a fault can come between two of them
ARROW_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"


def numbered(spark: SparkSession) -> DataFrame:
    source = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=ROWS, numPartitions=PARTITIONS)
    return source.load().select(F.col("value").cast("string").alias("value"))


def run_once(
    rows: DataFrame,
    bootstrap: str,
    topic: str,
    checkpoint: Path,
    source: str = "ottla",
    **options: str,
) -> None:
    writer = exactly_once(rows, f"sink-{topic}").format(source).options(**options)
    cluster = {"kafka.bootstrap.servers": bootstrap, "topic": topic}
    writer = writer.options(**cluster).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()


def faulty_source(
    name: str, folder: Path, before: Callable[..., None] | None, after: Callable[..., None] | None
) -> type[DataSource]:
    """`format("ottla")` under another name, whose tasks call `before` after some rows and `after` behind the commit.

    Both are called with the Spark partition and the folder, in Spark's Python process. The class is local, so it
    reaches that process by value.
    """
    path = str(folder)

    class Faulty(OttlaDataSource):
        @classmethod
        def name(cls) -> str:
            return name

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:
            writer = super().streamWriter(schema, overwrite)
            write = writer.write

            def faulty_write(batches: Any) -> Any:
                task = TaskContext.get()
                assert task is not None
                partition = task.partitionId()

                def faulty_batches() -> Any:
                    for count, batch in enumerate(batches):
                        if count == 2 and before is not None:
                            before(partition, path)
                        yield batch

                message = write(faulty_batches())
                if after is not None:
                    after(partition, path)
                return message

            writer.write = faulty_write  # type: ignore[assignment, method-assign]
            return writer

    return Faulty


def first_time(folder: str, what: str) -> bool:
    try:
        os.close(os.open(f"{folder}/{what}", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def fail_inside(partition: int, folder: str) -> None:
    if partition == 0 and first_time(folder, "raised inside"):
        raise ValueError("inside the transaction")
    if partition == 1 and first_time(folder, "exited inside"):
        os._exit(1)


def fail_behind(partition: int, folder: str) -> None:
    if partition == 2 and first_time(folder, "raised behind"):
        raise ValueError("behind the commit")
    if partition == 3 and first_time(folder, "exited behind"):
        os._exit(1)


def hang_last(partition: int, folder: str) -> None:
    """Partition 3 stays inside its transaction for as long as the others need, and longer."""
    Path(folder, f"inside {partition}").touch()
    while partition == 3:
        time.sleep(0.05)


def note_commit(partition: int, folder: str) -> None:
    Path(folder, f"committed {partition}").touch()


def has(folder: Path, *names: str) -> Callable[[], bool]:
    return lambda: all((folder / name).exists() for name in names)


def fail_last(partition: int, folder: str) -> None:
    if partition == 3:
        wait_for(has(Path(folder), "committed 0", "committed 1", "committed 2"))
        raise ValueError("partition 3 never works")
