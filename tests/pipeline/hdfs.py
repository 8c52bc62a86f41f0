"""A small HDFS of its own: a namenode and a datanode in one process, from Hadoop's own test jar."""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from ottla.pipeline.spark.java import ensure_java

MANAGER = "org.apache.hadoop.test.MiniDFSClusterManager"
START_TIMEOUT_S = 120


@contextmanager
def running_hdfs(jars: list[Path], folder: Path) -> Iterator[str]:
    """Its URL, while it runs."""
    folder.mkdir()
    details = folder / "details.json"
    environ = dict(os.environ)
    ensure_java(environ)
    java = Path(environ["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in environ else Path("java")
    class_path = ":".join([*map(str, jars), str(Path(pyspark.__file__).parent / "jars" / "*")])
    options = ["-datanodes", "1", "-format", "-nnport", "0", "-httpport", "0", "-writeDetails", str(details)]
    with (folder / "out").open("wb") as out:
        server = subprocess.Popen(
            [java, "-Xmx256m", "-cp", class_path, MANAGER, *options], cwd=folder, stdout=out, stderr=out
        )
        try:
            yield f"hdfs://127.0.0.1:{port_of(server, details)}"
        finally:
            server.kill()
            server.wait()


def port_of(server: subprocess.Popen[bytes], details: Path) -> int:
    """Once it has written where it listens, which it does last."""
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline_s and server.poll() is None:
        try:
            return int(json.loads(details.read_text())["namenode_port"])
        except (FileNotFoundError, ValueError):
            time.sleep(0.1)
    said = details.with_name("out").read_text(errors="replace")
    raise AssertionError(f"HDFS did not start: {said[-2000:]}")
