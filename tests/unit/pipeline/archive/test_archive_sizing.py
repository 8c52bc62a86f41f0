"""How a batch is limited and divided."""

import pytest

from ottla.pipeline.archive.settings import ArchiveSettings, parse_interval_ms
from ottla.pipeline.archive.sizing import Sizing
from ottla.pipeline.errors import PipelineError

MB = 1 << 20
DEFAULT_OFFSETS = ArchiveSettings(("raw",), "archive").max_offsets_per_batch


def test_a_minute_of_150_000_small_records_a_second_fits_into_one_batch() -> None:
    assert Sizing(100.0, cores=2).offsets_per_batch(DEFAULT_OFFSETS) >= 60 * 150_000


def test_a_batch_of_large_records_has_fewer_offsets() -> None:
    assert Sizing(1.0 * MB, cores=2).offsets_per_batch(DEFAULT_OFFSETS) == 4096
    assert Sizing(1e12, cores=2).offsets_per_batch(DEFAULT_OFFSETS) == 1
    assert Sizing(None, cores=2).offsets_per_batch(40) == 40


@pytest.mark.parametrize(
    ("offsets", "cores", "tasks"),
    [
        pytest.param(0, 8, 1, id="nothing"),
        pytest.param(1000, 8, 1, id="a small batch makes one file for each hour"),
        pytest.param(80 * MB // 100, 8, 3, id="not enough for all cores"),
        pytest.param(300 * MB // 100, 8, 8, id="all cores"),
        pytest.param(300 * MB // 100, 2, 4, id="a multiple of the cores, so that all end at the same time"),
        pytest.param(4096 * MB // 100, 100, 100, id="a large batch on many cores"),
    ],
)
def test_a_batch_is_divided_by_bytes_over_all_cores(offsets: int, cores: int, tasks: int) -> None:
    assert Sizing(100.0, cores).tasks(offsets) == tasks


def test_a_task_reads_one_or_several_ranges() -> None:
    sizing = Sizing(100.0, cores=4)
    ranges = 3_000_000 / sizing.offsets_per_range()
    assert sizing.tasks(3_000_000) <= ranges <= 20
    assert Sizing(1e12, cores=4).offsets_per_range() == 1


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1 minute", 60_000),
        ("10 seconds", 10_000),
        ("INTERVAL 1 hour 30 minutes", 5_400_000),
        ("500 milliseconds", 500),
    ],
)
def test_an_interval_is_read_as_spark_reads_it(text: str, ms: int) -> None:
    assert parse_interval_ms(text, "[sinks.archive]") == ms


@pytest.mark.parametrize("text", ["", "soon", "1", "minute", "1 fortnight"])
def test_another_interval_is_rejected(text: str) -> None:
    with pytest.raises(PipelineError, match=r"\[sinks.archive\]: `every` is .* such as 30 seconds"):
        parse_interval_ms(text, "[sinks.archive]")
