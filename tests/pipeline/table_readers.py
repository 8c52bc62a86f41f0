"""Programs that use the table of an archive again and again while it is written, and what they must have found."""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from tests.pipeline.archive_jars import jars_for
from tests.pipeline.other_writers import try_to_write

from ottla.pipeline.archive.embedded import query
from ottla.pipeline.spark.checkpoint import Checkpoint
from ottla.pipeline.spark.offsets import Offsets

Place = tuple[int, int]
PAUSE_S, SPARKS_PAUSE_S = 0.5, 3.0


class Reader(threading.Thread):
    """Calls `read` until it is ended, from the moment on when there is a table. It keeps what is new."""

    def __init__(self, name: str, table: Path, read: Callable[[], Any], pause_s: float = PAUSE_S) -> None:
        super().__init__(name=name, daemon=True)
        self.table = table
        self.read = read
        self.pause_s = pause_s
        self.found: list[Any] = []
        self.error: BaseException | None = None
        self._over = threading.Event()

    def run(self) -> None:
        first = self.table / "_delta_log" / f"{0:020}.json"
        try:
            while not first.exists() and not self._over.wait(self.pause_s):
                pass
            while not self._over.is_set():
                found = self.read()
                if not self.found or found != self.found[-1]:
                    self.found.append(found)
                self._over.wait(self.pause_s)
        except BaseException as error:
            self.error = error

    def end(self) -> None:
        self._over.set()
        self.join()
        if self.error is not None:
            raise AssertionError(f"{self.name} could not read the table: {self.error}") from self.error


class Readers:
    """All of them, of the topic raw, and a program that tries to write the table.

    The ends of batches, from Spark's checkpoint, say what the readers must find.
    """

    def __init__(self, archive: Path, checkpoint: Path, spark: SparkSession) -> None:
        self._checkpoint = Checkpoint.at(str(checkpoint))
        self._ends: dict[int, Offsets] = {}
        table = archive / "raw"
        self.readers = [
            Reader("delta-rs", table, lambda: with_delta_rs(table)),
            Reader("DuckDB with delta-rs", table, lambda: with_duckdb_and_delta_rs(table)),
            Reader("DuckDB", table, lambda: with_duckdb(archive)),
        ]
        if isinstance(jars_for("delta"), list):
            spark.conf.set("spark.databricks.delta.requiredSparkConfsCheck.enabled", "false")
            sparks = Reader("Spark", table, lambda: with_spark(spark, table), SPARKS_PAUSE_S)
            self.readers.append(sparks)
        self._batches = Reader("the test", table, self._note_batches)
        self._writer = Reader("another writer", table, lambda: try_to_write(table))
        self._all = (*self.readers, self._batches, self._writer)

    def start(self) -> None:
        for reader in self._all:
            reader.start()

    def end(self) -> None:
        for reader in self._all:
            reader.end()
        self._note_batches()

    def _note_batches(self) -> None:
        """Spark keeps the last hundred."""
        last = self._checkpoint.last_planned()
        for number in range(len(self._ends), -1 if last is None else last + 1):
            self._ends[number] = self._checkpoint.topic_offsets(number)

    def check(self, produced: Iterable[Place]) -> None:
        """Each reader found the records of whole batches, from the first on, and never fewer than before."""
        states = states_of(self._ends, list(produced))
        for reader in self.readers:
            last = -1
            for places in reader.found:
                assert len(set(places)) == len(places), f"{reader.name} found records twice"
                assert frozenset(places) in states, f"{reader.name} found {len(places)} records"
                number = states[frozenset(places)]
                assert number >= last, f"{reader.name} lost records"
                last = number
            print(f"{reader.name} found {len(reader.found)} of {len(states)} states")
            assert len(reader.found) > 1
        assert max(self._writer.found) > 1


def states_of(ends: Mapping[int, Offsets], produced: Sequence[Place]) -> dict[frozenset[Place], int]:
    """The records up to the end of each batch, with its number. Before the first there are none."""
    states = {frozenset[Place](): -1}
    for number, offsets in sorted(ends.items()):
        by_partition = {at.partition: offset for at, offset in offsets.items()}
        there = frozenset(place for place in produced if place[1] < by_partition.get(place[0], 0))
        states.setdefault(there, number)
    return states


def with_delta_rs(table: Path) -> list[Place]:
    found = DeltaTable(table).to_pyarrow_table(columns=["partition", "offset"])
    return sorted(zip(found["partition"].to_pylist(), found["offset"].to_pylist(), strict=True))


def with_duckdb_and_delta_rs(table: Path) -> list[Place]:
    with duckdb.connect() as connection:
        connection.register("raw", DeltaTable(table).to_pyarrow_dataset())
        return sorted(connection.execute('select partition, "offset" from raw').fetchall())


def with_duckdb(archive: Path) -> list[Place]:
    _, rows = query('select partition, "offset" from kept', {"kept": str(archive)}, {})
    return sorted((partition, offset) for partition, offset in rows)


def with_spark(spark: SparkSession, table: Path) -> list[Place]:
    rows = spark.read.format("delta").load(str(table)).select("partition", "offset").collect()
    return sorted((row.partition, row.offset) for row in rows)
