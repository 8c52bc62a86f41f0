"""The metadata log has Kafka's format: its tools read ours, and Ottla and Kafka continue each other's logs."""

import asyncio
import json
import random
import subprocess
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from tests.interop.brokers import run_kafka
from tests.interop.kafka_jars import java_command

from ottla.broker.quorum.bootstrap import DEFAULT_FEATURES
from ottla.broker.quorum.quorum import Quorum
from ottla.broker.quorum.settings import QuorumSettings
from ottla.core.controller import commands
from ottla.core.controller.image import ConfigResource as Resource
from ottla.core.controller.image import MetadataImage
from ottla.core.controller.settings import ControllerSettings, supported_feature_ranges
from ottla.env import Env
from ottla.env.clock import SystemClock
from ottla.env.processes import ChildProcesses
from ottla.env.real_disk import RealDisk
from ottla.env.real_network import RealNetwork
from ottla.env.threads import RealThreads
from ottla.model.config import ResourceType as OttlaResourceType
from ottla.model.ids import uuid_to_string
from ottla.protocol.metadata_records.records import Endpoint

pytestmark = pytest.mark.java

DUMP = "org.apache.kafka.tools.DumpLogSegments"
DIRECTORY_ID = uuid.UUID("f0e1d2c3-b4a5-4687-9788-796a5b4c3d2e")
TIMEOUT_S = 60
ATTEMPTS = 4


def run_quorum(log_dir: Path, use: Callable[[Quorum], Any], settings: QuorumSettings | None = None) -> None:
    async def main() -> None:
        env = Env(
            SystemClock(), RealDisk(), RealNetwork(), RealThreads(1), random.Random(1), ChildProcesses()
        )
        quorum = Quorum(
            env,
            str(log_dir),
            node_id=1,
            controller=ControllerSettings(validate_configs=lambda resource, configs, altered: None),
            settings=settings or QuorumSettings(),
            on_failure=lambda error: pytest.fail(str(error)),
        )
        await quorum.start()
        await use(quorum)
        await quorum.close()
        env.threads.close()

    asyncio.run(main())


async def fill(quorum: Quorum) -> None:
    """Submits one of each command that writes."""
    features = supported_feature_ranges()
    end_points = (Endpoint(name="PLAINTEXT", host="127.0.0.1", port=9092, security_protocol=0),)
    await quorum.submit(commands.RegisterController(1, uuid.UUID(int=7), end_points, features))
    before = quorum.image.brokers.get(1)
    directories = (DIRECTORY_ID,) if before is None else tuple(filter(None, before.log_dirs))
    epoch = await quorum.submit(
        commands.RegisterBroker(1, uuid.UUID(int=8), end_points, features, directories, rack="r1")
    )
    await quorum.submit(commands.BrokerHeartbeat(1, epoch, epoch))
    topics = tuple(
        commands.NewTopic(name, uuid.uuid4(), 2, 1, configs=(("retention.ms", "60000"),))
        for name in ("kept", "deleted", "grown")
    )
    await quorum.submit(commands.CreateTopics(topics))
    await quorum.submit(commands.DeleteTopics((commands.TopicToDelete(name="deleted"),)))
    await quorum.submit(commands.CreatePartitions((commands.NewPartitions("grown", 5),)))
    change = commands.ConfigChange("log.cleaner.threads", commands.ConfigOp.SET, "2")
    resource = Resource(OttlaResourceType.BROKER, "")
    await quorum.submit(commands.IncrementalAlterConfigs(((resource, (change,)),)))
    await quorum.submit(commands.AllocateProducerIds(1, epoch))
    await quorum.submit(commands.BrokerHeartbeat(1, epoch, epoch, want_fence=True))
    await quorum.submit(commands.BrokerHeartbeat(1, epoch, epoch))


def dump(libs: Path, file: Path) -> list[dict[str, Any]]:
    """The records of a file as Kafka's own tool reads them; it must report no error."""
    command = java_command(libs, DUMP, "--cluster-metadata-decoder", "--deep-iteration", "--files", str(file))
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    said = done.stdout + done.stderr
    for complaint in ("isvalid: false", "Error", "Exception", "Could not", "Found"):
        assert complaint not in said, said
    return [json.loads(line.partition("payload: ")[2]) for line in said.splitlines() if "payload: " in line]


def test_kafkas_dump_tool_reads_the_log_that_ottla_wrote(kafka_libs: Path, tmp_path: Path) -> None:
    run_quorum(tmp_path, fill)
    records = dump(kafka_libs, tmp_path / "__cluster_metadata-0" / f"{0:020d}.log")
    types = [record["type"] for record in records]
    levels = len(DEFAULT_FEATURES)
    assert types[0] == "BEGIN_TRANSACTION_RECORD"
    # With eligible leader replicas, min.insync.replicas is a config of the whole cluster (KIP-966).
    bootstrap = ["FEATURE_LEVEL_RECORD"] * levels + ["CONFIG_RECORD", "END_TRANSACTION_RECORD"]
    assert types[1 : levels + 3] == bootstrap
    assert set(types[levels + 3 :]) == {
        "REGISTER_CONTROLLER_RECORD",
        "REGISTER_BROKER_RECORD",
        "BROKER_REGISTRATION_CHANGE_RECORD",
        "TOPIC_RECORD",
        "CONFIG_RECORD",
        "PARTITION_RECORD",
        "REMOVE_TOPIC_RECORD",
        "PRODUCER_IDS_RECORD",
        "PARTITION_CHANGE_RECORD",
    }
    partition = next(record for record in records if record["type"] == "PARTITION_RECORD")
    assert partition["version"] == 2
    assert partition["data"]["leader"] == 1
    assert partition["data"]["directories"] == [uuid_to_string(DIRECTORY_ID)]


def test_kafkas_dump_tool_reads_the_snapshots_that_ottla_wrote(kafka_libs: Path, tmp_path: Path) -> None:
    run_quorum(tmp_path, fill, QuorumSettings(snapshot_bytes=1))
    newest = max((tmp_path / "__cluster_metadata-0").glob("*.checkpoint"))
    records = dump(kafka_libs, newest)
    assert records[0] == {
        "type": "FEATURE_LEVEL_RECORD",
        "version": 0,
        "data": {"name": "metadata.version", "featureLevel": 30},
    }
    names = {record["data"]["name"] for record in records if record["type"] == "TOPIC_RECORD"}
    assert names == {"kept", "grown"}
    assert sum(record["type"] == "PARTITION_RECORD" for record in records) == 7
    assert dump(kafka_libs, tmp_path / "bootstrap.checkpoint") == records[: len(DEFAULT_FEATURES)]


# What a request that is sent again may find, because the first one took effect.
DONE_BEFORE = {
    KafkaError.TOPIC_ALREADY_EXISTS,
    KafkaError.INVALID_PARTITIONS,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
}


def administer(bootstrap: str, call: Callable[[AdminClient], dict[Any, Future[Any]]]) -> None:
    """On a busy machine a Kafka that had just started never responded to a request: a new client sends it again."""
    for attempt in range(ATTEMPTS):
        admin = AdminClient({"bootstrap.servers": bootstrap})
        try:
            for future in call(admin).values():
                future.result(TIMEOUT_S / ATTEMPTS)
            return
        except TimeoutError:
            continue
        except KafkaException as error:
            if attempt == 0 or error.args[0].code() not in DONE_BEFORE:
                raise
            return
    raise AssertionError(f"Kafka did not respond to {ATTEMPTS} requests")


def use_kafka(bootstrap: str) -> None:
    topics = [NewTopic("alpha", 3, 1, config={"retention.ms": "60000"}), NewTopic("gone", 1, 1)]
    set_config = ConfigEntry("segment.bytes", "2000000", incremental_operation=AlterConfigOpType.SET)
    changes = [ConfigResource(ResourceType.TOPIC, "alpha", incremental_configs=[set_config])]
    administer(bootstrap, lambda admin: admin.create_topics(topics))
    administer(bootstrap, lambda admin: admin.create_partitions([NewPartitions("alpha", 5)]))
    administer(bootstrap, lambda admin: admin.delete_topics(["gone"]))
    administer(bootstrap, lambda admin: admin.incremental_alter_configs(changes))
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    producer.produce("alpha", b"to get a block of producer ids")
    assert producer.flush(TIMEOUT_S) == 0


@pytest.mark.slow
def test_ottla_continues_the_metadata_log_of_apache_kafka(kafka_libs: Path, tmp_path: Path) -> None:
    data_dir = tmp_path / "kafka"
    with run_kafka(data_dir) as kafka:
        use_kafka(kafka.bootstrap)
        kafka.stop()
    images: list[MetadataImage] = []

    async def look(quorum: Quorum) -> None:
        images.append(quorum.image)
        await fill(quorum)
        images.append(quorum.image)

    run_quorum(data_dir, look)
    written, ours = images
    assert written.features["metadata.version"] == 30
    assert len(written.topics["alpha"].partitions) == 5
    assert "gone" not in written.topics
    configs = written.config(OttlaResourceType.TOPIC, "alpha")
    assert configs == {"retention.ms": "60000", "segment.bytes": "2000000"}
    assert written.next_producer_id == 1000
    assert written.brokers[1].fenced
    alpha = ours.topics["alpha"].partitions[4]
    assert (alpha.leader, alpha.isr) == (1, (1,))
    assert alpha.leader_epoch > written.topics["alpha"].partitions[4].leader_epoch
    assert dump(kafka_libs, data_dir / "__cluster_metadata-0" / f"{0:020d}.log")


@pytest.mark.slow
def test_apache_kafka_continues_the_metadata_log_of_ottla(kafka_libs: Path, tmp_path: Path) -> None:
    data_dir = tmp_path / "ottla"
    data_dir.mkdir()
    # A snapshot in the middle, and records after it.
    run_quorum(data_dir, fill, QuorumSettings(snapshot_bytes=2000))
    cluster_id, directory_id = uuid_to_string(uuid.uuid4()), uuid_to_string(DIRECTORY_ID)
    (data_dir / "meta.properties").write_text(
        f"version=1\nnode.id=1\ncluster.id={cluster_id}\ndirectory.id={directory_id}\n"
    )
    with run_kafka(data_dir) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        listed = admin.list_topics(timeout=TIMEOUT_S).topics
        assert {name: len(topic.partitions) for name, topic in listed.items()} == {"kept": 2, "grown": 5}
        (described,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, "kept")]).values()
        assert described.result(TIMEOUT_S)["retention.ms"].value == "60000"
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True})
        producer.produce("grown", b"to a partition that Ottla placed", partition=4)
        assert producer.flush(TIMEOUT_S) == 0
        kafka.stop()
