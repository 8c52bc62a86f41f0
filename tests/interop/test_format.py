"""Ottla and Apache Kafka start on directories that the other's tool formatted."""

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.interop.brokers import run_kafka, run_ottla
from tests.interop.kafka_jars import java_command
from tests.interop.librdkafka import create_topic, produce_values

from ottla.broker.formatter import feature_levels

pytestmark = pytest.mark.java

STORAGE_TOOL = "kafka.tools.StorageTool"
CLUSTER = "4L6g3nShT-eMCtK--X86sw"
TIMEOUT_S = 60


def run(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def ottla_format(*arguments: str) -> str:
    return run([sys.executable, "-m", "ottla.cli.main", "format", *arguments])


def properties(tmp_path: Path) -> Path:
    """A node with two data directories and one for the metadata log."""
    config = tmp_path / "server.properties"
    config.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
        "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:9093\n"
        "controller.quorum.voters=1@127.0.0.1:9093\n"
        f"log.dirs={tmp_path}/a,{tmp_path}/b\nmetadata.log.dir={tmp_path}/m\n"
    )
    return config


def test_kafkas_storage_tool_accepts_our_directories(kafka_libs: Path, tmp_path: Path) -> None:
    config = properties(tmp_path)
    ottla_format("--config", str(config), "--cluster-id", CLUSTER)
    info = run(java_command(kafka_libs, STORAGE_TOOL, "info", "-c", str(config)))
    assert all(f"{tmp_path}/{name}\n" in info for name in "abm")
    assert f"cluster.id={CLUSTER}" in info
    assert "problem" not in info
    again = ("format", "-t", CLUSTER, "-c", str(config), "--ignore-formatted")
    assert "already formatted" in run(java_command(kafka_libs, STORAGE_TOOL, *again))


def test_our_command_accepts_the_directories_of_kafkas_storage_tool(kafka_libs: Path, tmp_path: Path) -> None:
    config = properties(tmp_path)
    run(java_command(kafka_libs, STORAGE_TOOL, "format", "-t", CLUSTER, "-c", str(config)))
    shown = ottla_format("--config", str(config), "--cluster-id", CLUSTER, "--ignore-formatted")
    assert shown.count("Already formatted:") == 3


def test_kafka_starts_on_a_directory_that_ottla_formatted(kafka_libs: Path, tmp_path: Path) -> None:
    ottla_format("--data", f"{tmp_path}/data", "--cluster-id", CLUSTER)
    with run_kafka(tmp_path / "data") as broker:
        produce_values(broker.bootstrap, create_topic(broker.bootstrap, "journal"), [b"a record"])
    assert (tmp_path / "data" / "journal-0").is_dir()
    assert f"cluster.id={CLUSTER}\n" in (tmp_path / "data" / "meta.properties").read_text()


def test_ottla_starts_on_a_directory_that_kafka_formatted(kafka_libs: Path, tmp_path: Path) -> None:
    config = properties(tmp_path)
    run(java_command(kafka_libs, STORAGE_TOOL, "format", "-t", CLUSTER, "-c", str(config)))
    with run_ottla(tmp_path / "a", set={"metadata.log.dir": f"{tmp_path}/m"}) as broker:
        produce_values(broker.bootstrap, create_topic(broker.bootstrap, "journal"), [b"a record"])
        assert CLUSTER in broker.log_text()
    assert (tmp_path / "a" / "journal-0").is_dir()


@pytest.mark.parametrize("release", ["3.9-IV0", "4.0-IV0", "4.0-IV2", "4.0-IV3", "4.3-IV0"])
def test_default_levels_of_a_release_are_kafkas(kafka_libs: Path, release: str) -> None:
    shown = run(java_command(kafka_libs, STORAGE_TOOL, "version-mapping", "--release-version", release))
    kafka = {name: int(level) for name, level in re.findall(r"^([a-z.]+)=(\d+)", shown, re.MULTILINE)}
    ours = feature_levels({"metadata.version": kafka["metadata.version"]})
    assert ours == {name: level for name, level in kafka.items() if name in ours}
    assert all(kafka[name] == 0 for name in ("group.version", "transaction.version") if name not in ours)
