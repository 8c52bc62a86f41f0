"""The runner on real Spark: what comes out of a query that fails, and what becomes of the others."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from ottla.admin.signal_flag import SignalFlag
from ottla.pipeline.errors import PermanentStageError, PipelineError, RetriableError
from ottla.pipeline.progress import Progress
from ottla.pipeline.restarts import ONCE, policy_of
from ottla.pipeline.runner import StageRun, check_spark, run_stages
from ottla.pipeline.stage import Finding

ROWS = 10


class FailingReader(DataSourceStreamReader):
    def __init__(self, fails: str) -> None:
        self.fails = fails

    def initialOffset(self) -> dict[str, Any]:
        return {"numbers": {"0": 0}}

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
        if self.fails == "planning":
            raise PipelineError("The folder is gone.", "Bring it back.")
        return {"numbers": {"0": ROWS}}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [InputPartition((start["numbers"]["0"], end["numbers"]["0"]))]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        if self.fails == "reading":
            raise PipelineError("The file has changed.", "Put it back as it was.")
        yield from ((number,) for number in range(*partition.value))


class FailingDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "ottla-test-failing"

    def schema(self) -> str:
        return "number int"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return FailingReader(self.options.get("fails", ""))


class NumbersStage:
    """Reads ten numbers, and gives each batch to a function."""

    def __init__(self, name: str, folder: Path, fails: str, take: Callable[[DataFrame, int], None]) -> None:
        self.name = name
        self.folder = folder
        self.fails = fails
        self.take = take

    def check(self) -> Iterator[Finding]:
        return iter(())

    def start(self, spark: SparkSession, trigger: Mapping[str, Any]) -> Any:
        rows = spark.readStream.format("ottla-test-failing").option("fails", self.fails).load()
        writer = rows.writeStream.foreachBatch(self.take).option(
            "checkpointLocation", str(self.folder / self.name)
        )
        return writer.trigger(**trigger).start()


class Silent:
    def changed(self, run: StageRun) -> None: ...
    def batch(self, run: StageRun, progress: Progress) -> None: ...
    def show(self, runs: Sequence[StageRun]) -> None: ...


def test_a_stage_that_fails_reports_one_sentence_and_the_others_continue(
    spark: SparkSession, tmp_path: Path
) -> None:
    # Spark's workers have no such module to import.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    spark.dataSource.register(FailingDataSource)
    attempts: list[int] = []
    written: list[int] = []

    def count(rows: DataFrame, batch: int) -> None:
        assert rows.count() == ROWS

    def once_away(rows: DataFrame, batch: int) -> None:
        attempts.append(batch)
        if len(attempts) == 1:
            raise RetriableError("The broker is away.", "Start it.")

    def raising(rows: DataFrame, batch: int) -> None:
        raise ZeroDivisionError("by nothing")

    def taken_over(rows: DataFrame, batch: int) -> None:
        written.append(batch)
        raise PermanentStageError("Another run writes these rows.", "Run only one.")

    stages = [
        NumbersStage("good", tmp_path, "", count),
        NumbersStage("planning", tmp_path, "planning", count),
        NumbersStage("reading", tmp_path, "reading", count),
        NumbersStage("passing", tmp_path, "", once_away),
        NumbersStage("raising", tmp_path, "", raising),
    ]
    runs = {stage.name: StageRun(stage.name, stage, ONCE) for stage in stages}
    behind = NumbersStage("behind", tmp_path, "", taken_over)
    runs["behind"] = StageRun("behind", behind, policy_of(-1), is_required=False)
    assert not run_stages(spark, [list(runs.values())], {"availableNow": True}, Silent(), SignalFlag())
    assert (runs["good"].state, runs["good"].rows) == ("done", ROWS), runs["good"].note
    assert (runs["planning"].state, runs["planning"].note) == ("failed", "The folder is gone. Bring it back.")
    assert (runs["reading"].state, runs["reading"].note) == (
        "failed",
        "The file has changed. Put it back as it was.",
    )
    assert runs["raising"].state == "failed"
    assert runs["raising"].note.startswith("ZeroDivisionError: by nothing")
    assert (runs["passing"].state, attempts) == ("done", [0, 0])
    assert (runs["behind"].state, written) == ("failed", [0])
    assert runs["behind"].note == "Another run writes these rows. Run only one."
    check_spark(spark, ValueError("Spark is still there"))
