"""One Spark for each test worker, brokers, and an empty pipeline to try stages in.

A test that takes `any_broker` runs on Ottla and on Apache Kafka: what the connector does holds for both.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.interop.brokers import RunningBroker
from tests.interop.conftest import kafka_libs, shared_brokers, starter_of, topic_name  # noqa: F401
from tests.pipeline.archive_jars import spark_class_path
from tests.pipeline.quick_start import quick_environment

from ottla.pipeline.stage import ClusterSettings, Context

Brokers = Callable[..., RunningBroker]


def pytest_configure(config: pytest.Config) -> None:
    # py4j leaves its sockets to the garbage collector, and pandas is asked by pyspark in old ways.
    config.addinivalue_line("filterwarnings", "ignore::ResourceWarning")
    config.addinivalue_line("filterwarnings", "ignore::pytest.PytestUnraisableExceptionWarning")
    config.addinivalue_line("filterwarnings", "ignore::DeprecationWarning:pyspark.*")
    config.addinivalue_line("filterwarnings", "ignore::FutureWarning:pyspark.*")


@pytest.fixture(scope="session", autouse=True)
def quick_starts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Of every JVM and every Python of Spark."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in quick_environment(tmp_path_factory.mktemp("python")).items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Local Spark with two cores, which retries tasks as a cluster does, and our sources registered."""
    from ottla.pipeline.spark.session import spark_session

    scratch = tmp_path_factory.mktemp("spark")
    conf = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.driver.memory": "1g",
        "spark.driver.extraClassPath": spark_class_path(),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.local.dir": str(scratch / "local"),
    }
    session = spark_session("ottla-tests", master="local[2,4]", conf=conf)
    yield session
    session.stop()


@pytest.fixture(params=["ottla", "kafka"])
def any_broker(request: pytest.FixtureRequest, shared_brokers: Brokers) -> RunningBroker:  # noqa: F811
    return shared_brokers(request.param)


@pytest.fixture
def broker(shared_brokers: Brokers) -> RunningBroker:  # noqa: F811
    """The shared Ottla: a test makes topics of its own and leaves the broker's settings as they are."""
    return shared_brokers("ottla")


@pytest.fixture
def context(broker: RunningBroker, tmp_path: Path, topic_name: str) -> Context:  # noqa: F811
    """A pipeline of its own name in an empty folder."""
    return Context(f"pipeline-{topic_name}", ClusterSettings(broker.bootstrap), tmp_path, "checkpoints")
