"""The values of metrics on a simulated broker."""

import asyncio
import gc
import logging
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
from kio.schema.get_telemetry_subscriptions.v0.request import GetTelemetrySubscriptionsRequest
from kio.schema.offset_commit.v9.request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kio.schema.push_telemetry.v0.request import PushTelemetryRequest
from tests.unit.broker.broker_bench import Bench, fetch_request, fetched, until
from tests.unit.broker.metrics.metrics_bench import on_metered_broker, samples_in, scrape
from tests.unit.broker.transaction_bench import TransactionalProducer
from tests.unit.core.transactions.test_transaction_listing import UnwalkableIds
from tests.unit.metrics.test_client_series import GAUGE, SUM, gauge, metrics_data

from ottla.broker.fair_scheduler import ITEMS_PER_SLICE
from ottla.broker.metrics.scrape import scrape as scrape_in_slices
from ottla.metrics import PROMETHEUS
from ottla.model.config import ResourceType
from ottla.model.errors import ErrorCode
from ottla.records.compression import NONE, ZSTD, compress

TOPIC_METRICS = "kafka_server_brokertopicmetrics_"


async def commit(bench: Bench, group: str, topic: str, **offsets: int) -> None:
    """Keywords are partitions, as `_0`."""
    await bench.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=(group,)))
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=(
            OffsetCommitRequestTopic(
                name=topic,
                partitions=tuple(
                    OffsetCommitRequestPartition(
                        partition_index=int(name[1:]), committed_offset=offset, committed_metadata=""
                    )
                    for name, offset in offsets.items()
                ),
            ),
        ),
    )
    while True:
        response = await bench.ask(request)
        errors = {partition.error_code for topic in response.topics for partition in topic.partitions}
        if errors == {ErrorCode.none}:
            return
        assert errors <= {ErrorCode.coordinator_load_in_progress, ErrorCode.not_coordinator}, errors
        await asyncio.sleep(0.1)


@on_metered_broker()
async def test_traffic_is_counted_by_topic_and_in_total(bench: Bench) -> None:
    topic_id = await bench.create("a", partitions=2)
    await bench.create("b")
    batch = bench.batch(b"x", b"y", b"z")
    await bench.produce("a", records=batch)
    await bench.produce("a", records=batch, partition=1)
    await bench.produce("b", records=batch)
    assert (await bench.produce("b", records=batch[:-1])).error_code is not ErrorCode.none
    await bench.read(topic_id)
    await bench.read(topic_id, offset=3)
    samples = await scrape(bench)
    assert samples[f'{TOPIC_METRICS}messagesin_total{{topic="a"}}'] == 6
    assert samples[f'{TOPIC_METRICS}messagesin_total{{topic="b"}}'] == 3
    assert samples[f"{TOPIC_METRICS}messagesin_total"] == 9
    assert samples[f'{TOPIC_METRICS}bytesin_total{{topic="a"}}'] == 2 * len(batch)
    assert samples[f'{TOPIC_METRICS}bytesout_total{{topic="a"}}'] == len(batch)
    assert samples[f"{TOPIC_METRICS}bytesout_total"] == len(batch)
    assert samples[f'{TOPIC_METRICS}totalproducerequests_total{{topic="b"}}'] == 2
    assert samples[f'{TOPIC_METRICS}failedproducerequests_total{{topic="b"}}'] == 1
    assert samples[f"{TOPIC_METRICS}failedproducerequests_total"] == 1
    assert samples[f'{TOPIC_METRICS}totalfetchrequests_total{{topic="a"}}'] == 2
    assert samples[f"{TOPIC_METRICS}replicationbytesout_total"] == 0


@on_metered_broker()
async def test_a_delayed_fetch_counts_its_bytes_once(bench: Bench) -> None:
    topic_id = await bench.create("a")
    waiting = asyncio.create_task(
        bench.ask(fetch_request(topic_id, fetched(), max_wait=timedelta(seconds=60), min_bytes=1))
    )
    await until(lambda: len(bench.services.delayed_operations) > 0)
    samples = await scrape(bench)
    assert samples['kafka_server_delayedoperationpurgatory_purgatorysize{delayedOperation="Fetch"}'] == 1
    batch = bench.batch(b"x")
    producer, bench.client = bench.client, bench.new_client("producer")
    await bench.produce("a", records=batch)
    await waiting
    samples = await scrape(bench)
    assert samples[f'{TOPIC_METRICS}bytesout_total{{topic="a"}}'] == len(batch)
    assert samples['kafka_server_delayedoperationpurgatory_purgatorysize{delayedOperation="Fetch"}'] == 0
    del producer


@on_metered_broker()
async def test_the_total_keeps_the_traffic_of_deleted_topics(bench: Bench) -> None:
    for _ in range(2):
        await bench.create("a")
        await bench.produce("a", b"x", b"y")
        await bench.ask(
            DeleteTopicsRequest(
                topics=(DeleteTopicState(name="a", topic_id=None),), timeout=timedelta(seconds=5)
            )
        )
    samples = await scrape(bench)
    assert samples[f"{TOPIC_METRICS}messagesin_total"] == 4
    assert not samples.of(f"{TOPIC_METRICS}bytesin_total").keys() - {f"{TOPIC_METRICS}bytesin_total"}
    await bench.create("a")
    await bench.produce("a", b"x")
    samples = await scrape(bench)
    assert samples[f'{TOPIC_METRICS}messagesin_total{{topic="a"}}'] == 1
    assert samples[f"{TOPIC_METRICS}messagesin_total"] == 5


@on_metered_broker()
async def test_partitions_and_metadata(bench: Bench) -> None:
    await bench.create("a", partitions=2)
    await bench.produce("a", b"x", b"y", partition=1)
    samples = await scrape(bench)
    assert samples['kafka_topic_partition_current_offset{partition="1",topic="a"}'] == 2
    assert samples['kafka_topic_partition_oldest_offset{partition="1",topic="a"}'] == 0
    assert samples['kafka_log_log_logendoffset{partition="1",topic="a"}'] == 2
    assert samples['kafka_log_log_size{partition="1",topic="a"}'] == len(bench.batch(b"x", b"y"))
    assert samples['kafka_log_log_size{partition="0",topic="a"}'] == 0
    assert samples['kafka_cluster_partition_atminisr{partition="0",topic="a"}'] == 1
    assert samples['kafka_topic_partitions{topic="a"}'] == 2
    assert samples['kafka_topic_partition_leader{partition="0",topic="a"}'] == 1
    assert samples["kafka_brokers"] == 1
    assert samples["kafka_server_replicamanager_partitioncount"] == 2
    assert samples["kafka_server_replicamanager_leadercount"] == 2
    assert samples["kafka_server_replicamanager_offlinereplicacount"] == 0
    assert samples["kafka_controller_kafkacontroller_activecontrollercount"] == 1
    assert samples["kafka_controller_kafkacontroller_globaltopiccount"] == 1
    assert samples["kafka_controller_kafkacontroller_globalpartitioncount"] == 2
    assert samples['kafka_server_raftmetrics_current_state{current_state="leader"}'] == 1
    assert (
        samples["kafka_server_brokermetadatametrics_last_applied_record_offset"]
        == bench.services.metadata.image.offset
    )


@on_metered_broker(("/data", "/other"))
async def test_replicas_in_an_offline_directory_are_counted(bench: Bench) -> None:
    await bench.create("a", partitions=4)
    bench.disk.fail("/other")
    for partition in range(4):
        await bench.produce("a", b"x", partition=partition)
    samples = await scrape(bench)
    assert samples["kafka_log_logmanager_offlinelogdirectorycount"] == 1
    offline = samples["kafka_server_replicamanager_offlinereplicacount"]
    assert 0 < offline < 4
    assert samples["kafka_server_replicamanager_partitioncount"] == 4
    assert len(samples.of("kafka_log_log_size")) == 4 - offline


@on_metered_broker()
async def test_groups_have_members_offsets_and_lag(bench: Bench) -> None:
    await bench.create("a", partitions=2)
    await bench.produce("a", b"x", b"y", b"z", partition=1)
    name = 'odd "name"\\'
    await commit(bench, name, "a", _0=0, _1=1)
    samples = await scrape(bench)
    assert samples[f'kafka_consumergroup_members{{consumergroup="{name}"}}'] == 0
    assert (
        samples[f'kafka_consumergroup_current_offset{{consumergroup="{name}",partition="1",topic="a"}}'] == 1
    )
    assert samples[f'kafka_consumergroup_lag{{consumergroup="{name}",partition="1",topic="a"}}'] == 2
    assert samples[f'kafka_consumergroup_lag{{consumergroup="{name}",partition="0",topic="a"}}'] == 0


@on_metered_broker()
async def test_groups_are_there_after_a_restart_without_any_consumer(bench: Bench) -> None:
    await bench.create("a")
    await bench.produce("a", b"x", b"y")
    await commit(bench, "stopped", "a", _0=1)
    await bench.stop()
    await bench.start()
    lag = 'kafka_consumergroup_lag{consumergroup="stopped",partition="0",topic="a"}'
    while lag not in (samples := await scrape(bench)):  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    assert samples[lag] == 1


@on_metered_broker()
async def test_requests_are_counted_and_timed(bench: Bench) -> None:
    topic_id = await bench.create("a")
    await bench.produce("a", b"x")
    await bench.produce("a", b"x")
    waited = bench.ask(fetch_request(topic_id, fetched(2), max_wait=timedelta(seconds=3), min_bytes=1))
    await waited
    samples = await scrape(bench)
    assert samples['kafka_network_requestmetrics_requests_total{request="Produce",version="12"}'] == 2
    assert samples['kafka_network_requestmetrics_totaltimems_count{request="Produce"}'] == 2
    assert samples['ottla_request_duration_seconds_count{request="Fetch"}'] == 1
    assert samples['ottla_request_duration_seconds_bucket{le="2.5",request="Fetch"}'] == 0
    assert samples['ottla_request_duration_seconds_bucket{le="5.0",request="Fetch"}'] == 1
    remote = samples['kafka_network_requestmetrics_remotetimems_sum{request="Fetch"}']
    assert 2990 < remote < 3500
    assert samples['kafka_network_requestmetrics_localtimems_sum{request="Fetch"}'] < 100
    phases = [
        samples[f'kafka_network_requestmetrics_{phase}timems_sum{{request="Fetch"}}']
        for phase in ("requestqueue", "local", "remote", "responsequeue", "responsesend")
    ]
    total = 'kafka_network_requestmetrics_totaltimems{quantile="0.99",request="Fetch"}'
    assert samples['kafka_network_requestmetrics_totaltimems_sum{request="Fetch"}'] == pytest.approx(
        sum(phases)
    )
    assert 2500 < samples[total] < 4000
    assert samples['kafka_network_requestmetrics_requestbytes_sum{request="Produce"}'] > 100


@on_metered_broker()
async def test_a_request_waits_in_the_queue_for_the_one_before_it(bench: Bench) -> None:
    topic_id = await bench.create("a")
    slow = fetch_request(topic_id, fetched(), max_wait=timedelta(seconds=3), min_bytes=1)
    await asyncio.gather(bench.ask(slow), bench.ask(slow))
    samples = await scrape(bench)
    assert 2900 < samples['kafka_network_requestmetrics_requestqueuetimems_sum{request="Fetch"}'] < 3500


@on_metered_broker()
async def test_transactional_ids_are_counted_without_a_visit_to_each(bench: Bench) -> None:
    for name in ("a", "b"):
        producer = TransactionalProducer(bench, name)
        while (code := await producer.init()) is not ErrorCode.none:
            assert code in (ErrorCode.coordinator_load_in_progress, ErrorCode.not_coordinator)
            await asyncio.sleep(0.1)
    for runtime in bench.services.transactions.get().runtimes:
        store = runtime.shard._store
        store.by_id = UnwalkableIds(store.by_id)
    samples = await scrape(bench)
    assert samples.of("ottla_transactional_ids") == {'ottla_transactional_ids{state="empty"}': 2}


@on_metered_broker()
async def test_connections_and_memory(bench: Bench) -> None:
    await bench.create("a")
    samples = await scrape(bench)
    assert samples['kafka_server_socket_server_metrics_connection_count{listener="PLAINTEXT"}'] == 1
    assert samples['kafka_server_socket_server_metrics_connection_creation_total{listener="PLAINTEXT"}'] == 1
    assert samples["kafka_network_socketserver_memorypoolavailable"] == 512 << 20


@on_metered_broker()
async def test_a_scrape_of_many_partitions_is_divided_into_short_turns(bench: Bench) -> None:
    """Measured in processor time of this thread, which other processes do not increase."""
    await bench.create("a", partitions=2000)
    await commit(bench, "group", "a", **{f"_{n}": n for n in range(2000)})
    assert bench.broker.metrics is not None
    in_threads_ns = 0

    async def run(work: Callable[[], Any]) -> Any:
        nonlocal in_threads_ns
        began = time.thread_time_ns()
        result = work()
        in_threads_ns += time.thread_time_ns() - began
        return result

    # Not over the simulated network, and without simulated threads: time stands still while this test watches.
    bench.services.env.threads.run = run  # type: ignore[method-assign]
    text = asyncio.create_task(
        scrape_in_slices(bench.broker.metrics._collectors, bench.services.scheduler, PROMETHEUS)
    )
    turns_ms = []
    gc.disable()  # a broker process collects far less often than a process of tests
    try:
        while not text.done():
            began, in_threads_ns = time.thread_time_ns(), 0
            await asyncio.sleep(0)
            turns_ms.append((time.thread_time_ns() - began - in_threads_ns) / 1e6)
    finally:
        gc.enable()
    samples = samples_in(b"".join(await text).decode())
    assert len(samples.of("kafka_log_log_size")) == 2000 + 50  # and __consumer_offsets
    assert len(samples.of("kafka_consumergroup_lag")) == 2000
    assert len(samples.of("ottla_consumergroup_lag_seconds")) == 2000
    assert len(turns_ms) > 2000 / ITEMS_PER_SLICE
    assert max(turns_ms) < 5


async def subscribe(bench: Bench) -> Any:
    await bench.configure(ResourceType.CLIENT_METRICS, "all", metrics="*", interval_ms="1000")
    return await bench.ask(GetTelemetrySubscriptionsRequest(client_instance_id=None))


async def push(bench: Bench, subscription: Any, data: bytes, codec: int = NONE) -> ErrorCode:
    """After the interval."""
    request = PushTelemetryRequest(
        client_instance_id=subscription.client_instance_id,
        subscription_id=subscription.subscription_id,
        terminating=False,
        compression_type=codec,
        metrics=data,
    )
    await asyncio.sleep(1)
    code: ErrorCode = (await bench.ask(request)).error_code
    return code


@on_metered_broker()
async def test_metrics_that_a_client_pushes_are_exposed(bench: Bench) -> None:
    answer = await subscribe(bench)
    assert await push(bench, answer, b"m") is ErrorCode.invalid_record
    assert await push(bench, answer, metrics_data(GAUGE, SUM)) is ErrorCode.none
    assert await push(bench, answer, metrics_data(SUM)) is ErrorCode.none
    samples = await scrape(bench)
    own = f'client_id="client",client_instance_id="{answer.client_instance_id}"'
    assert samples[f"org_apache_kafka_producer_record_send_total{{{own}}}"] == 14
    assert samples[f'org_apache_kafka_producer_node_request_latency_avg{{{own},node_id="1"}}'] == 2.5
    assert samples["ottla_client_metrics_clients"] == 1
    await asyncio.sleep(5)
    samples = await scrape(bench)
    assert samples["ottla_client_metrics_clients"] == 0
    assert not samples.of("org_apache_kafka_producer_record_send_total")


@pytest.mark.timeout(60)
@on_metered_broker()
async def test_a_small_push_of_many_points_with_a_long_name_is_read_in_a_thread_of_its_own(
    bench: Bench,
) -> None:
    """It took the event loop 280 s. The time is processor time of this thread, which others do not increase."""
    packed = compress(ZSTD, metrics_data(gauge("n" * 500_000, points=45_000)))
    assert len(packed) < 200
    subscription = await subscribe(bench)
    threads, in_threads_ns = bench.services.env.threads, 0

    async def run(work: Callable[[], Any]) -> Any:
        nonlocal in_threads_ns
        began = time.thread_time_ns()
        result = work()
        in_threads_ns += time.thread_time_ns() - began
        return result

    threads.run = run  # type: ignore[method-assign]
    async with bench.services.message_thread._lock:  # it decodes messages of other clients
        began = time.thread_time_ns()
        assert await push(bench, subscription, packed, ZSTD) is ErrorCode.none
        on_loop_ms = (time.thread_time_ns() - began - in_threads_ns) / 1e6
    assert on_loop_ms < 100
    samples = await scrape(bench)
    assert samples["ottla_client_metrics_dropped_total"] == 1001
    assert samples["ottla_client_metrics_pushes_total"] == 1


def test_a_limit_that_clients_exceed_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    @on_metered_broker()
    async def run(bench: Bench) -> None:
        subscription = await subscribe(bench)
        for _ in range(3):
            assert await push(bench, subscription, metrics_data(gauge("n" * 256))) is ErrorCode.none
        assert (await scrape(bench))["ottla_client_metrics_dropped_total"] == 3

    with caplog.at_level(logging.WARNING, "ottla.telemetry"):
        run()
    (message,) = [text for text in caplog.messages if "metrics of clients are dropped" in text]
    assert "more than 255 bytes in a name (first by client 'client'" in message


@on_metered_broker()
async def test_disks_and_network(bench: Bench) -> None:
    await bench.create("a")
    await bench.produce("a", b"x" * 1000)
    samples = await scrape(bench)
    assert samples['kafka_server_socket_server_metrics_incoming_byte_total{listener="PLAINTEXT"}'] > 1000
    assert samples['kafka_server_socket_server_metrics_outgoing_byte_total{listener="PLAINTEXT"}'] > 100
    assert samples['ottla_log_directory_free_bytes{directory="/data"}'] > 0
    assert samples["ottla_page_cache_misses_total"] == 0
