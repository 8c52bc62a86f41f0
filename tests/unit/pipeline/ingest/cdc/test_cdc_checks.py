"""Checks before the start that all captured databases share."""

from ottla.pipeline.ingest.cdc.checks import topics_of


def test_a_shared_topic_is_needed_even_without_tables() -> None:
    assert topics_of("raw", []) == {"raw"}
    assert topics_of("{db}.{table}", ["a.b"]) == {"a.b"}
