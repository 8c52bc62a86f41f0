"""The whole pipeline on a real Spark cluster, with everything killed: each input arrives once, byte for byte.

Meanwhile other programs read the archive as a Delta table, and try to write it.
"""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession
from tests.interop.brokers import RunningBroker, run_ottla
from tests.pipeline.archiving import data_files, make_topic, run_all, sink
from tests.pipeline.cdc.mysql.mariadb_server import MariaDb, why_no_mariadb
from tests.pipeline.end_to_end import LATE_HOURS, Feeding, World, check_everything, make_database
from tests.pipeline.pipeline_command import ottla_asking
from tests.pipeline.pipeline_run import KINDS
from tests.pipeline.spark_cluster import SparkCluster, kill_group, started, tail
from tests.pipeline.table_readers import Readers
from tests.pipeline.written_topics import wait_for

from ottla.pipeline.archive.layout import STAGING
from ottla.pipeline.archive.merge import HOUR_MS, KEEP_UNNAMED_MS, delete_leftovers, wall_clock_ms
from ottla.pipeline.stage import ClusterSettings, Context

BATCHES_BETWEEN = 4
OLD_RECORDS = 300
# On a busy machine Spark needs minutes for what takes it seconds.
PATIENCE_S = 240


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[RunningBroker]:
    with run_ottla(tmp_path / "broker") as broker:
        yield broker


@pytest.fixture
def database(tmp_path: Path) -> Iterator[MariaDb]:
    if why_no_mariadb():
        pytest.skip(why_no_mariadb())
    (tmp_path / "db").mkdir()
    database = MariaDb(tmp_path / "db")
    database.create()
    database.start()
    make_database(database)
    yield database
    database.kill()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    (tmp_path / "spark").mkdir()
    cluster = SparkCluster(tmp_path / "spark")
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_input_arrives_once_whatever_is_killed(
    tmp_path: Path,
    spark: SparkSession,
    own_broker: RunningBroker,
    database: MariaDb,
    cluster: SparkCluster,
) -> None:
    seed = random.SystemRandom().randrange(10_000)
    print(f"seed {seed}")
    chance = random.Random(seed)
    folder = tmp_path / "work"
    folder.mkdir()
    reloaded = make_old_archive(spark, own_broker, folder)
    world = World(folder, own_broker, cluster, database=database)
    world.prepare()
    feeding = Feeding(world, random.Random(seed))
    readers = Readers(folder / "archive", folder / "checkpoints" / "archive", spark)
    try:
        world.start_driver()
        feeding.start()
        readers.start()
        world.until_batches(5, PATIENCE_S)
        for kind in chance.sample(KINDS, k=len(KINDS)):
            if kind == "driver":
                kill_while_it_merges(world, chance)
            else:
                world.fault(kind, chance)
            world.until_batches(chance.randrange(1, BATCHES_BETWEEN), PATIENCE_S)
        feeding.end()
        world.kill_driver()
        world.leave_small_files()
        drained = world.run("run", "--once", "--plain", timeout_s=PATIENCE_S)
        assert drained.returncode == 0, f"{world.faults}\n{drained.stdout}\n{world.story()}"
        raw = check_everything(world, feeding.lines, reloaded + feeding.late)
        kill_a_merge(world)
        said = ottla_asking(spark, "pipeline", "merge", "--file", str(folder))
        assert said.count(" files are 1, ") == len(LATE_HOURS)
        readers.end()
        readers.check(record.place for record in raw)
        ottla_asking(spark, "pipeline", "verify", "--deep", "--file", str(folder))
        check_nothing_is_left(world, spark)
    finally:
        if world.driver is not None:
            world.kill_driver()
        print(world.faults)


def kill_while_it_merges(world: World, chance: random.Random) -> None:
    """Kills the driver. The next one merges small files after its first batch: kills all others meanwhile."""
    world.until(world.has_small_files, "small files", PATIENCE_S)
    before = world.merges()
    world.fault("driver", chance)
    world.until(lambda: bool(world.merges() - before), "merge", PATIENCE_S, poll_s=0.02)
    for kind in chance.sample(("executors", "broker"), k=2):
        world.fault(kind, chance)


def kill_a_merge(world: World) -> None:
    """Kills `ottla pipeline merge` after its executors, before its manifest."""
    before, known = world.merges(), world.archive.load()
    log = world.folder / "merge.log"
    merge = started(world.command("merge"), log, world.folder)
    try:
        wait_for(lambda: bool(world.merges() - before) or merge.poll() is not None, PATIENCE_S)
        executors = world.cluster.executors()
        world.fault("executors", random.Random())
        wait_for(lambda: bool(set(world.cluster.executors()) - set(executors)), PATIENCE_S)
        assert merge.poll() is None, tail(log)
    finally:
        kill_group(merge)
    assert world.archive.load() == known
    assert world.merges() - before


def check_nothing_is_left(world: World, spark: SparkSession) -> None:
    """Of batches at once, and of merges after two days."""
    archive = world.archive
    archived = archive.load()
    assert set(archive.files.names(STAGING)) == world.merges()
    later_ms = wall_clock_ms() + KEEP_UNNAMED_MS + HOUR_MS
    delete_leftovers(spark, archive, archived, archived.histories, later_ms)
    assert archive.files.names(STAGING) == []
    assert {
        str(path.relative_to(world.folder / "archive")) for path in data_files(world.folder)
    } == archived.files.keys()


def make_old_archive(spark: SparkSession, broker: RunningBroker, folder: Path) -> list[bytes]:
    """An archive of another topic, which the pipeline loads into raw."""
    make_topic(broker.bootstrap, "old")
    values = [f'{{"old": {number}}}'.encode() for number in range(OLD_RECORDS)]
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in values:
        producer.produce("old", value, key=value[-4:], headers=[("old", b"yes")])
    assert producer.flush(60) == 0
    context = Context("old", ClusterSettings(broker.bootstrap), folder, "old-checkpoints")
    run_all(spark, sink(context, "old", path="old-archive"))
    return values
