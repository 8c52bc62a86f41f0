"""The checkers of topics that are deleted and created again catch what they are for."""

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


def test_records_that_were_asked_to_be_deleted_may_be_gone(history: TopicHistory) -> None:
    history.asked_start = 1
    history.check_bounds(1, 2)
    history.check_log({1: B})


def test_a_compacted_log_may_keep_the_last_record_of_a_key_only(history: TopicHistory) -> None:
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
            {0: A, 1: B, 2: Written(b"key", b"events-0/7")}, "written to another", id="an old record"
        ),
    ],
)
def test_a_log_that_was_not_written_so_is_found(
    history: TopicHistory, log: dict[int, Written], message: str
) -> None:
    with pytest.raises(Violation, match=message):
        history.check_log(log)


def test_a_start_that_nobody_asked_for_and_a_lost_end_are_found(history: TopicHistory) -> None:
    with pytest.raises(Violation, match="starts at offset 500; nobody asked to delete beyond 0"):
        history.check_bounds(500, 500)
    with pytest.raises(Violation, match="high watermark of events-1 is 1; offset 1 was acknowledged"):
        history.check_bounds(0, 1)
