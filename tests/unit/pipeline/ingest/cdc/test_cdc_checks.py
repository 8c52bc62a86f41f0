"""Checks before the start that all captured databases share."""

from pathlib import Path

from ottla.pipeline.ingest.cdc.checkpoint import last_offset
from ottla.pipeline.ingest.cdc.checks import topics_of


def test_a_shared_topic_is_needed_even_without_tables() -> None:
    assert topics_of("raw", []) == {"raw"}
    assert topics_of("{db}.{table}", ["a.b"]) == {"a.b"}


def test_the_last_offset_is_that_of_the_newest_planned_batch(tmp_path: Path) -> None:
    assert last_offset(tmp_path) is None
    (tmp_path / "offsets").mkdir()
    for batch in (9, 10):
        (tmp_path / "offsets" / str(batch)).write_text(f'v1\n{{}}\n{{"chunk":1,"gtid":"0-1-{batch}"}}')
    (tmp_path / "offsets" / ".10.crc").touch()
    assert last_offset(tmp_path) == {"chunk": 1, "gtid": "0-1-10"}
