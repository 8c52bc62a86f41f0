"""The lag of groups in seconds: the age of the record at the committed offset."""

from unittest.mock import patch

import pytest
from kio.schema.write_txn_markers.v1.request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.unit.broker.broker_bench import Bench
from tests.unit.broker.metrics.metrics_bench import on_metered_broker, scrape
from tests.unit.broker.metrics.test_collectors import commit

from ottla.broker.metrics import lag_times
from ottla.records.records import Record, build_batch


def lag_of(group: str, partition: int = 0) -> str:
    return f'ottla_consumergroup_lag_seconds{{consumergroup="{group}",partition="{partition}",topic="a"}}'


async def produce_aged(bench: Bench, *ages_s: int, codec: int = 0) -> None:
    now_ms = bench.world.clock.now_ms()
    records = [Record(i, now_ms - 1000 * age, None, b"x") for i, age in enumerate(ages_s)]
    await bench.produce("a", records=build_batch(records, codec=codec))


@on_metered_broker()
async def test_the_record_at_the_committed_offset_counts_not_its_neighbours(bench: Bench) -> None:
    await bench.create("a")
    await produce_aged(bench, 900, 30, 600)
    await produce_aged(bench, 50, 40, codec=1)
    for offset in range(6):
        await commit(bench, f"at-{offset}", "a", _0=offset)
    samples = await scrape(bench)
    found = [samples[lag_of(f"at-{offset}")] for offset in range(6)]
    assert found == pytest.approx([900, 30, 600, 50, 40, 0], abs=10)


@on_metered_broker()
async def test_a_record_without_a_timestamp_has_no_age(bench: Bench) -> None:
    await bench.create("a")
    await bench.produce("a", records=build_batch([Record(0, -1, None, b"x")]))
    await commit(bench, "g", "a", _0=0)
    samples = await scrape(bench)
    assert lag_of("g") not in samples
    assert samples['kafka_consumergroup_lag{consumergroup="g",partition="0",topic="a"}'] == 1


@on_metered_broker()
async def test_groups_that_stand_still_are_read_once(bench: Bench) -> None:
    await bench.create("a")
    await produce_aged(bench, 100, 50)
    await commit(bench, "g", "a", _0=0)
    with patch.object(lag_times, "_read", wraps=lag_times._read) as read:
        await scrape(bench)
        first = (await scrape(bench))[lag_of("g")]
        assert read.call_count == 1
        await commit(bench, "g", "a", _0=1)
        assert (await scrape(bench))[lag_of("g")] < first
        assert read.call_count == 2


@on_metered_broker()
async def test_the_reads_of_a_scrape_are_limited_and_every_group_gets_its_turn(bench: Bench) -> None:
    await bench.create("a")
    await produce_aged(bench, 100, 50)
    for group in range(7):
        await commit(bench, f"g{group}", "a", _0=0)
    with patch.object(lag_times, "LOOKUPS_MAX", 3):
        known = [len((await scrape(bench)).of("ottla_consumergroup_lag_seconds")) for _ in range(3)]
    assert known == [3, 6, 7]


@on_metered_broker()
async def test_markers_of_transactions_are_no_records(bench: Bench) -> None:
    await bench.create("a")
    await produce_aged(bench, 100)
    marker = WritableTxnMarker(
        producer_id=7,
        producer_epoch=0,
        transaction_result=True,
        topics=(WritableTxnMarkerTopic(name="a", partition_indexes=(0,)),),
        coordinator_epoch=0,
    )
    await bench.ask(WriteTxnMarkersRequest(markers=(marker,)))
    await commit(bench, "g", "a", _0=1)
    samples = await scrape(bench)
    assert samples['kafka_consumergroup_lag{consumergroup="g",partition="0",topic="a"}'] == 1
    assert samples[lag_of("g")] == 0
    await produce_aged(bench, 100)
    assert (await scrape(bench))[lag_of("g")] == pytest.approx(100, abs=10)
