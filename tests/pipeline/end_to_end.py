"""A pipeline of everything on a real Spark cluster, what goes into it, and what must have come out.

What came out is read with librdkafka and pyarrow, not with our own connector.
"""

import contextlib
import json
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from tests.pipeline.cdc.mysql.mariadb_server import PASSWORD, USER, MariaDb
from tests.pipeline.pipeline_run import PipelineRun
from tests.pipeline.quick_start import JAVA_OPTIONS

from ottla.pipeline.archive.automatic_merge import FILES_MIN
from ottla.pipeline.archive.layout import STAGING
from ottla.pipeline.archive.merge import HOUR_MS, mergeable, wall_clock_ms
from ottla.pipeline.archive.store import Archive

READ_TIMEOUT_S = 60
ROWS = 40
# hours that are over for so long that their files are merged
LATE_HOURS = (3, 4, 5)

PIPELINE = """\
name = "whole"

[cluster]
bootstrap = "{bootstrap}"

[spark]
master = "{master}"
checkpoints = "checkpoints"
interval = "500 milliseconds"
[spark.conf]
"spark.ui.enabled" = false
"spark.sql.shuffle.partitions" = 2
"spark.driver.memory" = "700m"
"spark.executor.memory" = "600m"
"spark.executor.extraJavaOptions" = "{executor_options}"
"spark.driver.host" = "127.0.0.1"
"spark.driver.bindAddress" = "127.0.0.1"
"spark.task.maxFailures" = 20
"spark.deploy.maxExecutorRetries" = -1

[topics.raw]
partitions = 2
[topics.orders]
partitions = 2
[topics.orders-dead]
partitions = 1

[sources.files]
kind = "spooldir"
folder = "spool"
topic = "raw"
settle_s = 0.2

[sources.shop]
kind = "mysql"
host = "127.0.0.1"
port = {database_port}
user = "{user}"
password = "{password}"
tables = ["shop.stock"]
topic = "raw"

[sources.history]
kind = "archive"
path = "old-archive"
to = "raw"
partitioning = "key"

[transforms.orders]
from = "raw"
to = "orders"
function = "transforms.py:orders"
dead_letters = "orders-dead"

[sinks.archive]
kind = "archive"
topics = ["raw"]
path = "archive"
format = "delta"
every = "2 seconds"
"""

TRANSFORMS = '''\
"""JSON is kept, everything else is a dead letter."""

from ottla.pipeline.transform.parts import reject


def orders(raw):
    return reject(raw, "substring(value, 1, 1) <> X'7B'", "not JSON")
'''


class Record(NamedTuple):
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes]

    @property
    def place(self) -> tuple[int, int]:
        return self.partition, self.offset

    @property
    def origin(self) -> tuple[int, int]:
        return int(self.headers["origin.partition"]), int(self.headers["origin.offset"])


@dataclass
class World(PipelineRun):
    """All that runs: a broker, a database, a Spark cluster, and the driver as a person starts it."""

    database: MariaDb = field(kw_only=True)

    def prepare(self) -> None:
        (self.folder / "spool").mkdir()
        (self.folder / "transforms.py").write_text(TRANSFORMS)
        text = PIPELINE.format(
            bootstrap=self.broker.bootstrap,
            master=self.cluster.url,
            database_port=self.database.port,
            user=USER,
            password=PASSWORD,
            executor_options=JAVA_OPTIONS,
        )
        (self.folder / "pipeline.toml").write_text(text)

    @property
    def archive(self) -> Archive:
        return Archive.at(str(self.folder / "archive"))

    def has_small_files(self) -> bool:
        """Whether an archive that starts will merge some."""
        return bool(mergeable(self.archive.load(), wall_clock_ms(), FILES_MIN))

    def leave_small_files(self) -> None:
        """From the next start on, to `ottla pipeline merge`."""
        path = self.folder / "pipeline.toml"
        path.write_text(path.read_text() + "merge_small_files = false\n")

    def merges(self) -> set[str]:
        """The staging folders of merges that write, or were killed while they did."""
        return {name for name in self.archive.files.names(STAGING) if name.startswith("merge-")}


class Feeding(threading.Thread):
    """Puts files into the spool folder, changes into the database and late records into raw while processes are killed.

    Late records belong to past hours, whose small files the archive merges.
    """

    def __init__(self, world: World, chance: random.Random) -> None:
        super().__init__(daemon=True)
        self.world = world
        self.chance = chance
        self.lines: list[bytes] = []
        self.late: list[bytes] = []
        self.changes = 0
        self.error: BaseException | None = None
        self._over = threading.Event()
        configs: dict[str, Any] = {"bootstrap.servers": world.broker.bootstrap, "enable.idempotence": True}
        self._producer = Producer(configs)
        self._began_ms = wall_clock_ms()

    def run(self) -> None:
        try:
            number = 0
            while not self._over.is_set() or number < 10:
                self._drop_file(number)
                self._change(number)
                self._produce_late(number)
                number += 1
                self._over.wait(0.7)
            assert self._producer.flush(READ_TIMEOUT_S) == 0
            # Otherwise it looks for the broker until the end of all tests.
            del self._producer
        except BaseException as error:
            self.error = error

    def _produce_late(self, number: int) -> None:
        for hours in LATE_HOURS:
            value = f'{{"late": {number}, "hours": {hours}}}'.encode()
            at_ms = self._began_ms - hours * HOUR_MS
            self._producer.produce("raw", value, timestamp=at_ms, headers=[("old", b"yes")])
            self.late.append(value)
        self._producer.poll(0)

    def end(self) -> None:
        self._over.set()
        self.join()
        if self.error is not None:
            raise self.error

    def _drop_file(self, number: int) -> None:
        lines = [self._line(number, index) for index in range(self.chance.randrange(40, 120))]
        lines.append(b"the last line, which is not empty: without its end it would be none")
        ending = b"" if number % 3 == 0 else b"\n"
        path = self.world.folder / "spool" / f"orders-{number:03}.jsonl"
        fresh = path.with_suffix(".tmp")
        fresh.write_bytes(b"\n".join(lines) + ending)
        fresh.rename(path)
        self.lines += lines

    def _line(self, number: int, index: int) -> bytes:
        mark = f"{number}-{index}".encode()
        kind = self.chance.randrange(6)
        if kind == 0:
            return b"\xff\xfe\x00 " + mark + b"\r"
        if kind == 1 and index:
            return b""
        return json.dumps({"id": mark.decode(), "text": "ü" * self.chance.randrange(30)}).encode()

    def _change(self, number: int) -> None:
        with contextlib.closing(self.world.database.connect()) as connection, connection.cursor() as cursor:
            for _ in range(20):
                row = self.chance.randrange(ROWS)
                cursor.execute("update shop.stock set version = version + 1 where id = %s", (row,))
                self.changes += 1
            cursor.execute("insert into shop.stock values (%s, 0, 'added')", (1_000 + number,))
            if number % 2:
                cursor.execute("delete from shop.stock where id = %s", (1_000 + number - 1,))


def make_database(database: MariaDb) -> None:
    rows = ", ".join(f"({row}, 0, 'first')" for row in range(ROWS))
    database.run(
        "create database shop",
        "create table shop.stock (id int primary key, version int not null, note varchar(20))",
        f"insert into shop.stock values {rows}",
    )


# -- what came out


def read_topic(bootstrap: str, topic: str) -> list[Record]:
    """Every committed record, in the order of its partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "oracle",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    try:
        partitions = consumer.list_topics(topic, READ_TIMEOUT_S).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        return list(_until_ends(consumer, set(partitions), topic))
    finally:
        consumer.close()


def _until_ends(consumer: Consumer, open_partitions: set[int], topic: str) -> Iterator[Record]:
    deadline = time.monotonic() + READ_TIMEOUT_S
    while open_partitions:
        if time.monotonic() > deadline:
            raise AssertionError(f"{topic} could not be read to its end in {READ_TIMEOUT_S} s")
        message = consumer.poll(1.0)
        if message is None:
            continue
        error = message.error()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                open_partitions.discard(message.partition())
            continue
        headers: Any = dict(message.headers() or [])
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        yield Record(partition, offset, message.key(), message.value(), headers)


def read_archive(folder: Path) -> list[tuple[tuple[int, int], bytes | None]]:
    """(partition, offset) and value of every row of the files that count: those that a manifest names."""
    rows = []
    for name in sorted(Archive.at(str(folder)).load().files):
        table = pq.read_table(folder / name, columns=["partition", "offset", "value"], partitioning=None)
        rows += [((row["partition"], row["offset"]), row["value"]) for row in table.to_pylist()]
    return rows


def check_everything(world: World, lines: list[bytes], reloaded: list[bytes]) -> list[Record]:
    """Returns the records of raw."""
    raw = read_topic(world.broker.bootstrap, "raw")
    check_raw(raw, lines, reloaded, world)
    by_place = {record.place: record for record in raw}
    good = read_topic(world.broker.bootstrap, "orders")
    dead = read_topic(world.broker.bootstrap, "orders-dead")
    counted = Counter(record.origin for record in (*good, *dead))
    assert [place for place, count in counted.items() if count > 1] == []
    assert counted.keys() == by_place.keys(), sorted(by_place.keys() ^ counted.keys())[:20]
    for record in good:
        assert record.value == by_place[record.origin].value
        assert record.value is None or record.value[:1] == b"{"
    for record in dead:
        assert record.value == by_place[record.origin].value
        assert record.headers["error.reason"] == b"not JSON"
    archived = read_archive(world.folder / "archive")
    assert len(archived) == len({place for place, _ in archived})
    assert dict(archived) == {place: record.value for place, record in by_place.items()}
    return raw


def check_raw(raw: list[Record], lines: list[bytes], reloaded: list[bytes], world: World) -> None:
    """Every input once, byte for byte."""
    of_files = [record for record in raw if "file" in record.headers]
    came: Counter[bytes | None] = Counter(record.value for record in of_files)
    went_in: Counter[bytes | None] = Counter(lines)
    assert (came - went_in, went_in - came) == (Counter(), Counter())
    places = [(record.headers["file"], record.headers["line"]) for record in of_files]
    assert len(places) == len(set(places))
    old = [record.value for record in raw if "old" in record.headers]
    assert sorted(value or b"" for value in old) == sorted(reloaded)
    changes = [record for record in raw if "file" not in record.headers and "old" not in record.headers]
    check_changes(changes, world.database)


def check_changes(changes: list[Record], database: MariaDb) -> None:
    """Replayed, they give the table; each version of a row is there once, in order; a delete has its tombstone."""
    by_key: dict[bytes, list[Any]] = defaultdict(list)
    for record in changes:
        assert record.key is not None
        by_key[record.key].append(None if record.value is None else json.loads(record.value))
    table = {}
    for key, events in by_key.items():
        row = json.loads(key)["id"]
        versions = [event["after"]["version"] for event in events if event and event["after"]]
        assert versions == list(range(versions[0], versions[0] + len(versions))), (row, versions)
        is_deleted = events[-1] is None
        assert [index for index, event in enumerate(events) if event is None] == [
            index + 1 for index, event in enumerate(events) if event and event["op"] == "d"
        ]
        if not is_deleted:
            table[row] = events[-1]["after"]["version"]
    assert table == dict(database.run("select id, version from shop.stock"))
