"""The whole pipeline on a real Spark cluster, with everything killed: each input arrives once, byte for byte."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession
from tests.interop.brokers import RunningBroker, run_ottla
from tests.pipeline.archiving import make_topic, run_all, sink
from tests.pipeline.cdc.mysql.mariadb_server import MariaDb, why_no_mariadb
from tests.pipeline.end_to_end import Feeding, World, check_everything, make_database
from tests.pipeline.pipeline_command import ottla_asking
from tests.pipeline.pipeline_run import KINDS
from tests.pipeline.spark_cluster import SparkCluster

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
    try:
        world.start_driver()
        feeding.start()
        world.until_batches(5, PATIENCE_S)
        for kind in chance.sample(KINDS, k=len(KINDS)):
            world.fault(kind, chance)
            world.until_batches(chance.randrange(1, BATCHES_BETWEEN), PATIENCE_S)
        feeding.end()
        world.kill_driver()
        drained = world.run("run", "--once", "--plain", timeout_s=PATIENCE_S)
        assert drained.returncode == 0, f"{world.faults}\n{drained.stdout}\n{world.story()}"
        check_everything(world, feeding.lines, reloaded)
        ottla_asking(spark, "pipeline", "verify", "--file", str(folder))
    finally:
        if world.driver is not None:
            world.kill_driver()
        print(world.faults)


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
