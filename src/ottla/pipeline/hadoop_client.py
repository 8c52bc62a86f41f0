"""Hadoop's file systems without Spark, for commands that read a few files of s3a:// or hdfs://.

A Java starts with the pipeline's settings of Spark, so it finds the same jars, addresses and credentials as a run.
Spark itself does not start, which would take several times as long.
"""

import contextlib
import subprocess
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from ottla.pipeline.config import Pipeline, as_text
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.spark.java import ensure_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_END_TIMEOUT_S = 10
# Hadoop's own limits let a command wait for many minutes.
_LIMITS = {
    "fs.s3a.attempts.maximum": "2",
    "fs.s3a.retry.limit": "2",
    "fs.s3a.connection.establish.timeout": "5s",
    "fs.s3a.connection.request.timeout": "20s",
    "ipc.client.connect.max.retries": "2",
    "ipc.client.connect.max.retries.on.timeouts": "1",
    "ipc.client.connect.timeout": "5000",
    "dfs.client.failover.max.attempts": "4",
}
# of Spark's settings, those that are Hadoop's
_HADOOP = "spark.hadoop."


class _Session:
    """What `HadoopFiles` needs of a Spark session."""

    def __init__(self, jvm: Any, configuration: Any) -> None:
        self._jvm = jvm
        self._configuration = configuration

    @property
    def _jsc(self) -> "_Session":
        return self

    def hadoopConfiguration(self) -> Any:
        return self._configuration


@contextlib.contextmanager
def hadoop_client(pipeline: Pipeline) -> "Iterator[SparkSession]":
    """For `files_at` alone: it stands in for a session there, and ends with the block."""
    from pyspark import SparkConf
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    ensure_java()
    conf = SparkConf().setAll([(key, as_text(value)) for key, value in pipeline.spark.conf.items()])
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    try:
        gateway = launch_gateway(conf, quiet)  # type: ignore[no-untyped-call]
    except PySparkRuntimeError:
        raise PipelineError(
            "Java did not start, with which the checkpoints are read.",
            "Check `conf` in [spark]: a run with it prints the reason.",
        ) from None
    try:
        jvm = gateway.jvm
        java_conf = jvm.org.apache.spark.SparkConf(True)
        for key, value in conf.getAll():
            java_conf.set(key, value)
        configuration = jvm.org.apache.spark.deploy.SparkHadoopUtil.get().newConfiguration(java_conf)
        for key, value in _LIMITS.items():
            if conf.get(f"{_HADOOP}{key}") is None:
                configuration.set(key, value)
        yield cast("SparkSession", _Session(jvm, configuration))
    finally:
        process: subprocess.Popen[bytes] = gateway.proc
        gateway.shutdown()
        # Java ends with its input.
        if process.stdin is not None:
            process.stdin.close()
        try:
            process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
