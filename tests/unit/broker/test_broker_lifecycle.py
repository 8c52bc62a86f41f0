"""Starts, stops and restarts, on a simulated disk and on a real one."""

import asyncio
import errno
import logging
import threading
import uuid
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import pytest
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from kio.schema.init_producer_id.v5.request import InitProducerIdRequest
from tests.unit.broker.broker_bench import Bench, on_broker

from ottla.broker.node import Broker
from ottla.broker.run import _serve as serve_node
from ottla.core.controller.delta import ReplayError
from ottla.env.real import real_env
from ottla.model.config import BrokerConfig, ConfigError, ResourceType
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition
from ottla.records.records import Record, build_batch, read_batches
from ottla.sim.client import SimClient
from ottla.sim.threads import SimThreads
from ottla.storage.checkpoints import encode_partition_metadata
from ottla.storage.meta_properties import UnusableDirectoryError

T = TypeVar("T")


async def broker_in(*directories: Path, node_id: int = 1, port: int = 0, **configs: str) -> Broker:
    """Keywords are configs, with `_` for the dots."""
    settings = {
        "node.id": str(node_id),
        "log.dirs": ",".join(map(str, directories)),
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
    }
    settings |= {name.replace("_", "."): value for name, value in configs.items()}
    return await Broker.start(BrokerConfig(settings))


def client_of(broker: Broker) -> SimClient:
    return SimClient(broker.services.env.network, broker.address, "test")


def run(work: Awaitable[T]) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(60):
            return await work

    return asyncio.run(bounded())


async def new_producer_id(bench: Bench) -> int:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout=timedelta(minutes=1))
    response = await bench.ask(request)
    assert response.error_code is ErrorCode.none
    producer_id: int = response.producer_id
    return producer_id


@on_broker(started=False)
async def test_a_restart_keeps_topics_configs_records_producers_and_the_cluster_id(bench: Bench) -> None:
    await bench.start()
    cluster_id = bench.services.cluster_id
    topic_id = await bench.create("journal", 3, retention_ms="86400000")
    await bench.configure(ResourceType.BROKER, "", message_max_bytes="5000")
    producer_id = await new_producer_id(bench)
    batch = bench.batch(b"a", producer_id=producer_id, producer_epoch=0, base_sequence=0)
    assert (await bench.produce("journal", records=batch)).base_offset == 0
    for end in (bench.stop, bench.kill, bench.stop):
        await end()
        await bench.start()
        assert bench.services.cluster_id == cluster_id
        topic = bench.services.metadata.image.topics["journal"]
        assert (topic.topic_id, len(topic.partitions)) == (topic_id, 3)
        assert bench.services.metadata.image.config(ResourceType.TOPIC, "journal") == {
            "retention.ms": "86400000"
        }
        assert bench.services.config.get_int("message.max.bytes") == 5000
        assert await bench.read(topic_id) == [b"a"]
        duplicate = await bench.produce("journal", records=batch)
        assert (duplicate.error_code, duplicate.base_offset) == (ErrorCode.none, 0)
    await bench.stop()


@on_broker(started=False)
async def test_a_producer_id_is_never_assigned_twice_across_stops_and_kills(bench: Bench) -> None:
    seen: list[int] = []
    for end in (bench.stop, bench.kill, bench.lose_power, bench.stop):
        await bench.start()
        seen += await asyncio.gather(*(new_producer_id(bench) for _ in range(20)))
        await end()
    assert len(set(seen)) == len(seen) == 80


@on_broker(started=False)
async def test_a_deleted_topic_stays_deleted_after_a_kill(bench: Bench) -> None:
    await bench.start()
    await bench.create("journal")
    await bench.produce("journal", b"a")
    wanted = (DeleteTopicState(name="journal", topic_id=None),)
    await bench.ask(DeleteTopicsRequest(topics=wanted, timeout=timedelta(seconds=1)))
    await bench.kill()
    await bench.start()
    assert "journal" not in bench.services.metadata.image.topics
    topic_id = await bench.create("journal")
    assert await bench.read(topic_id) == []
    await bench.stop()


@on_broker(started=False)
async def test_a_topic_that_is_created_again_does_not_have_the_records_of_the_old_one(bench: Bench) -> None:
    await bench.start()
    await bench.create("journal")
    await bench.produce("journal", b"old")
    folder = "/data/journal-0"
    old = {name: bench.disk.read_bytes(f"{folder}/{name}") for name in bench.disk.list_dir(folder)}
    wanted = (DeleteTopicState(name="journal", topic_id=None),)
    await bench.ask(DeleteTopicsRequest(topics=wanted, timeout=timedelta(seconds=1)))
    await bench.stop()
    # The folder of a deleted topic that could not be removed.
    bench.disk.make_dirs(folder)
    for name, data in old.items():
        bench.disk.write_atomically(f"{folder}/{name}", data)
    for _ in range(2):
        await bench.start()
        await bench.stop()
    (stray,) = [name for name in bench.disk.list_dir("/data") if name.endswith("-stray")]
    await bench.start()
    topic_id = await bench.create("journal")
    assert await bench.read(topic_id) == []
    assert (await bench.produce("journal", b"new")).base_offset == 0
    await bench.stop()
    kept = {name: bench.disk.read_bytes(f"/data/{stray}/{name}") for name in old}
    assert kept == old


@on_broker(started=False)
async def test_a_folder_with_another_topic_id_is_set_aside(bench: Bench) -> None:
    await bench.start()
    topic_id = await bench.create("journal")
    await bench.produce("journal", b"old")
    await bench.stop()
    path = "/data/journal-0/partition.metadata"
    bench.disk.write_atomically(path, encode_partition_metadata(uuid.UUID(int=5)))
    await bench.start()
    assert await bench.read(topic_id) == []
    assert (await bench.produce("journal", b"new")).base_offset == 0
    await bench.stop()
    (stray,) = [name for name in bench.disk.list_dir("/data") if name.endswith("-stray")]
    (log,) = [name for name in bench.disk.list_dir(f"/data/{stray}") if name.endswith(".log")]
    assert b"old" in bench.disk.read_bytes(f"/data/{stray}/{log}")


@on_broker(started=False)
async def test_a_damaged_log_is_offline_until_its_topic_is_deleted_and_created_again(bench: Bench) -> None:
    await bench.start()
    await bench.create("journal")
    await bench.produce("journal", b"old")
    await bench.stop()
    path = f"/data/journal-0/{0:020d}.log"
    damaged = bench.disk.read_bytes(path)[:-1] + b"?"
    bench.disk.write_atomically(path, damaged)
    bench.disk.remove("/data/.kafka_cleanshutdown")
    await bench.start()
    assert (await bench.produce("journal", b"new")).error_code is ErrorCode.kafka_storage_error
    wanted = (DeleteTopicState(name="journal", topic_id=None),)
    await bench.ask(DeleteTopicsRequest(topics=wanted, timeout=timedelta(seconds=1)))
    assert bench.disk.read_bytes(path) == damaged
    topic_id = await bench.create("journal")
    assert (await bench.produce("journal", b"new")).base_offset == 0
    assert await bench.read(topic_id) == [b"new"]
    (stray,) = [name for name in bench.disk.list_dir("/data") if name.endswith("-stray")]
    assert bench.disk.read_bytes(f"/data/{stray}/{0:020d}.log") == damaged
    await bench.stop()


@on_broker(started=False, directories=("/one", "/two"))
async def test_a_directory_that_fails_while_strays_are_renamed_is_offline_and_the_other_serves(
    bench: Bench,
) -> None:
    await bench.start()
    await bench.create("journal", 2)
    await bench.stop()
    bench.disk.make_dirs("/two/unknown-0")
    bench.disk.fail("/two/unknown-0", operations=frozenset({"rename"}))
    await bench.start()
    assert [*bench.services.log_dirs.offline] == ["/two"]
    assert len(bench.services.log_dirs.logs) == 1
    await bench.stop()
    assert bench.disk.exists("/two/unknown-0")


def test_a_separate_metadata_directory_belongs_to_one_cluster(tmp_path: Path) -> None:
    async def start_and_stop(data: str) -> None:
        async with await broker_in(tmp_path / data, metadata_log_dir=str(tmp_path / "metadata")):
            pass

    for _ in range(2):
        run(start_and_stop("a"))
    assert "cluster.id=" in (tmp_path / "metadata" / "meta.properties").read_text()
    with pytest.raises(UnusableDirectoryError, match=f"{tmp_path / 'metadata'} belongs to cluster"):
        run(start_and_stop("b"))
    (tmp_path / "metadata" / "meta.properties").unlink()
    with pytest.raises(UnusableDirectoryError, match=r"metadata/meta\.properties is missing"):
        run(start_and_stop("a"))


def test_a_broker_serves_on_its_configured_port_and_stops_cleanly(tmp_path: Path) -> None:
    async def main() -> None:
        async with await broker_in(tmp_path) as broker:
            client = client_of(broker)
            assert await client.create_topic("journal", 1, {}) is ErrorCode.none
            topic_id = (await client.metadata("journal")).topics[0].topic_id
            assert topic_id is not None
            batch = build_batch([Record(0, 1000, None, b"value")])
            assert (await client.produce(topic_id, 0, batch)).base_offset == 0
            records = (await client.fetch(topic_id, 0, 0)).records or b""
            assert [record.value for record in read_batches(records)[0].records] == [b"value"]
            client.close()
        assert (tmp_path / ".kafka_cleanshutdown").exists()

    run(main())


def test_two_brokers_run_independently_in_one_process(tmp_path: Path) -> None:
    async def main() -> None:
        async with await broker_in(tmp_path / "a") as one, await broker_in(tmp_path / "b", node_id=2) as two:
            assert one.services.cluster_id != two.services.cluster_id
            client = client_of(one)
            assert await client.create_topic("journal", 1, {}) is ErrorCode.none
            client.close()
            assert "journal" in one.services.metadata.image.topics
            assert "journal" not in two.services.metadata.image.topics

    run(main())


def test_a_data_directory_in_use_is_rejected(tmp_path: Path) -> None:
    async def main() -> None:
        async with await broker_in(tmp_path):
            with pytest.raises(
                UnusableDirectoryError, match="in use by another broker: stop that one or choose"
            ):
                await broker_in(tmp_path)
        async with await broker_in(tmp_path):
            pass

    run(main())


def test_a_data_directory_of_another_node_is_rejected(tmp_path: Path) -> None:
    async def main() -> None:
        async with await broker_in(tmp_path, node_id=1):
            pass
        with pytest.raises(
            UnusableDirectoryError, match=r"belongs to node 1, and this is node 2: start with"
        ):
            await broker_in(tmp_path, node_id=2)
        async with await broker_in(tmp_path, node_id=1):
            pass

    run(main())


def test_data_directories_of_two_clusters_are_rejected(tmp_path: Path) -> None:
    async def main() -> None:
        for name in ("a", "b"):
            async with await broker_in(tmp_path / name):
                pass
        with pytest.raises(
            UnusableDirectoryError, match=r"belongs to cluster .* says .*: choose another directory"
        ):
            await broker_in(tmp_path / "a", tmp_path / "b")

    run(main())


def test_a_port_in_use_is_an_error_and_leaves_nothing_behind(tmp_path: Path) -> None:
    async def main() -> None:
        async with await broker_in(tmp_path / "a") as first:
            before = asyncio.all_tasks()
            with pytest.raises(OSError) as rejected:
                await broker_in(tmp_path / "b", port=first.address[1])
            assert rejected.value.errno == errno.EADDRINUSE
            # This test, and of the first broker: raft, the quorum, the controller and its two checks, heartbeats, idle
            # connections, housekeeping, the log cleaner.
            assert asyncio.all_tasks() == before
            assert len(before) == 10
        async with await broker_in(tmp_path / "b"):
            pass

    run(main())


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (OSError(errno.ENOSPC, "No space left"), "No space left. Fix the disk and start the broker again"),
        (
            KafkaError(ErrorCode.unsupported_version, "a TopicRecord has version 9"),
            "version 9. Start it with the release that wrote the metadata log, or a newer one",
        ),
        (
            KafkaError(ErrorCode.stale_broker_epoch, "broker 1 was unregistered"),
            "broker 1 was unregistered\n",
        ),
        (ReplayError("no topic"), "no topic. Keep a copy of the metadata log, and report this error"),
    ],
)
def test_a_node_that_fails_while_it_starts_exits_with_code_1_and_says_what_to_do(
    failure: Exception, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def start(config: BrokerConfig, *, env: None, failed: "asyncio.Future[Exception]") -> Broker:
        failed.set_result(failure)
        raise failure

    monkeypatch.setattr(Broker, "start", start)
    assert run(serve_node(BrokerConfig({"listeners": "PLAINTEXT://127.0.0.1:0"}), None)) == 1
    said = capsys.readouterr().err
    assert said.startswith("ottla serve: the broker failed while it started: ")
    assert message in said


def test_a_start_that_fails_does_not_make_the_last_stop_an_unclean_one(tmp_path: Path) -> None:
    async def main() -> None:
        async with await broker_in(tmp_path / "a") as broker:
            client = client_of(broker)
            assert await client.create_topic("journal", 1, {}) is ErrorCode.none
            client.close()
            epoch = broker.lifecycle.broker_epoch
        async with await broker_in(tmp_path / "b") as other:
            with pytest.raises(OSError):
                await broker_in(tmp_path / "a", port=other.address[1])
        async with await broker_in(tmp_path / "a") as broker:
            log_dirs = broker.services.log_dirs
            assert log_dirs.last_broker_epoch == epoch
            assert log_dirs.was_closed_cleanly(TopicPartition("journal", 0))
            assert not (tmp_path / "a" / ".kafka_cleanshutdown").exists(), "a crash from now on must show"

    run(main())


@on_broker(started=False)
async def test_a_power_loss_after_a_clean_stop_and_a_start_is_noticed(bench: Bench) -> None:
    for end in (bench.stop, bench.lose_power):
        await bench.start()
        await end()
    await bench.start()
    assert bench.services.log_dirs.last_broker_epoch == -1
    await bench.stop()


def test_an_env_that_is_passed_in_stays_open_after_the_stop(tmp_path: Path) -> None:
    async def main() -> None:
        env = real_env()
        config = BrokerConfig(
            {"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0", "node.id": "1"}
        )
        async with await Broker.start(config, env):
            pass
        assert await env.threads.run(lambda: 7) == 7
        env.threads.close()

    run(main())


def test_a_background_task_that_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    @on_broker()
    async def body(bench: Bench) -> None:
        async def fail() -> None:
            raise ZeroDivisionError("a bug")

        bench.services.tasks.start(fail())
        await asyncio.sleep(1)

    with caplog.at_level(logging.ERROR, "ottla"):
        body()
    assert "a background task failed" in caplog.messages


@on_broker(started=False)
async def test_a_restart_with_many_partitions_reads_no_log_data(bench: Bench) -> None:
    await bench.start()
    await bench.create("journal", 200)
    for partition in range(0, 200, 10):
        await bench.produce("journal", bytes(10_000), partition=partition)
    await bench.stop()
    await bench.start()
    assert bench.disk.stats.bytes_read < 100_000
    await bench.stop()


def test_if_one_of_two_listeners_cannot_be_bound_the_other_is_closed(tmp_path: Path) -> None:
    async def main() -> None:
        async with await broker_in(tmp_path / "a") as first:
            taken = first.address[1]
            config = BrokerConfig(
                {
                    "node.id": "2",
                    "log.dirs": str(tmp_path / "b"),
                    "listeners": f"PLAINTEXT://127.0.0.1:0,OTHER://127.0.0.1:{taken}",
                    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT",
                }
            )
            before = asyncio.all_tasks()
            with pytest.raises(OSError):
                await Broker.start(config)
            assert asyncio.all_tasks() == before

    run(main())


def test_after_an_unclean_stop_logs_are_recovered_by_the_threads_of_their_directory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[int, int]] = []
    run_all = SimThreads.run_all

    async def note(workers: SimThreads, works: Sequence[Callable[[], None]], threads: int) -> None:
        asked.append((len(works), threads))
        await run_all(workers, works, threads)

    monkeypatch.setattr(SimThreads, "run_all", note)

    @on_broker(started=False, directories=("/one", "/two"))
    async def body(bench: Bench) -> None:
        await bench.start()
        topic_id = await bench.create("journal", 6)
        for partition in range(6):
            await bench.produce("journal", b"%d" % partition, partition=partition)
        await bench.stop()
        await bench.start()
        assert asked == []
        await bench.kill()
        await bench.start(num_recovery_threads_per_data_dir="3")
        assert sorted(asked) == [(3, 3), (3, 3)]
        for partition in range(6):
            assert await bench.read(topic_id, partition=partition) == [b"%d" % partition]
        await bench.stop()

    body()


def test_run_all_runs_functions_in_parallel_threads(tmp_path: Path) -> None:
    async def main() -> None:
        env = real_env()
        meeting = threading.Barrier(3, timeout=30)  # breaks if fewer run at the same time

        def meet() -> None:
            meeting.wait()

        await env.threads.run_all([meet] * 6, 3)
        env.threads.close()

    run(main())


def test_a_broker_with_configs_of_unsupported_functions_does_not_start(tmp_path: Path) -> None:
    config = BrokerConfig(
        {
            "log.dirs": str(tmp_path / "data"),
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "authorizer.class.name": "a.Authorizer",
            "create.topic.policy.class.name": "a.Policy",
        }
    )
    with pytest.raises(ConfigError) as rejected:
        run(Broker.start(config))
    assert [problem.partition(" ")[0] for problem in rejected.value.errors] == [
        "authorizer.class.name",
        "create.topic.policy.class.name",
    ]
    assert not (tmp_path / "data").exists()
