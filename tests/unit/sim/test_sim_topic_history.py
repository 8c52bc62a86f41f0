"""The topic history detects every violation that it checks for."""

import pytest

from ottla.sim.history import Violation
from ottla.sim.topic_history import TopicHistory, Written

A, B, C = (Written(b"key", b"events-1/%d" % number) for number in range(3))
OTHER_KEY = Written(b"other", b"events-1/9")


@pytest.fixture
def history() -> TopicHistory:
    history = TopicHistory("events-1")
    history.acknowledged = {0: A, 1: B}
    return history


def test_a_log_with_every_acknowledged_record_passes(history: TopicHistory) -> None:
    history.check_bounds(0, 3)
    history.check_log({0: A, 1: B, 2: C})


def test_records_below_the_requested_start_may_be_missing(history: TopicHistory) -> None:
    history.requested_start = 1
    history.check_bounds(1, 2)
    history.check_log({1: B})


def test_a_compacted_log_may_keep_only_the_last_record_of_a_key(history: TopicHistory) -> None:
    history.was_compacted = True
    history.check_log({1: B})
    with pytest.raises(Violation, match="acknowledged at offset 0 of events-1, which holds None"):
        history.check_log({1: OTHER_KEY})


@pytest.mark.parametrize(
    ("log", "message"),
    [
        pytest.param({1: B}, "acknowledged at offset 0", id="a record is lost"),
        pytest.param({0: A, 1: C}, "acknowledged at offset 1", id="another record is there"),
        pytest.param(
            {0: A, 1: B, 2: Written(b"key", b"events-0/7")}, "written to an earlier topic", id="an old record"
        ),
    ],
)
def test_a_lost_or_foreign_record_is_detected(
    history: TopicHistory, log: dict[int, Written], message: str
) -> None:
    with pytest.raises(Violation, match=message):
        history.check_log(log)


def test_a_wrong_log_start_offset_and_a_lost_end_are_detected(history: TopicHistory) -> None:
    with pytest.raises(Violation, match="starts at offset 500, but DeleteRecords requested only 0"):
        history.check_bounds(500, 500)
    with pytest.raises(Violation, match="high watermark of events-1 is 1, but offset 1 was acknowledged"):
        history.check_bounds(0, 1)
