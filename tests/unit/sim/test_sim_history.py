"""The checkers catch what they are for."""

import pytest

from ottla.sim.history import PartitionHistory, Value, Violation

A0, A1, A2, B0 = Value("a", 0), Value("a", 1), Value("a", 2), Value("b", 0)


@pytest.fixture
def history() -> PartitionHistory:
    return PartitionHistory(attempted={A0, A1, A2, B0})


def test_a_log_with_every_record_once_and_in_order_passes(history: PartitionHistory) -> None:
    history.acknowledge(A0, 0)
    history.acknowledge(A0, 0)
    history.acknowledge(A1, 2)
    history.see(1, B0)
    history.check_log([(0, A0), (1, B0), (2, A1), (3, A2)])


@pytest.mark.parametrize(
    ("log", "message"),
    [
        pytest.param([(0, A0), (2, A1)], "not dense: after 0 comes 2", id="a hole"),
        pytest.param([(1, A0)], "not dense", id="a lost start"),
        pytest.param([(0, A0), (1, A0)], "holds number 0 of a where 1 is due", id="a duplicate"),
        pytest.param([(0, A1), (1, A0)], "holds number 1 of a where 0 is due", id="overtaken"),
        pytest.param([(0, A0), (1, A2)], "holds number 2 of a where 1 is due", id="left out"),
        pytest.param([(0, Value("c", 0))], "nobody wrote", id="invented"),
        pytest.param([(0, B0), (1, A0)], "acknowledged at offset 0, which holds", id="moved"),
        pytest.param([], "acknowledged at offset 0, which holds None", id="lost"),
    ],
)
def test_a_log_that_breaks_a_promise_is_caught(
    history: PartitionHistory, log: list[tuple[int, Value]], message: str
) -> None:
    history.acknowledge(A0, 0)
    with pytest.raises(Violation, match=message):
        history.check_log(log)


def test_what_a_consumer_saw_and_is_gone_is_caught(history: PartitionHistory) -> None:
    history.see(0, A0)
    with pytest.raises(Violation, match="a consumer saw"):
        history.check_log([])


def test_a_second_offset_for_an_acknowledged_record_is_caught(history: PartitionHistory) -> None:
    history.acknowledge(A0, 0)
    with pytest.raises(Violation, match="and again at 1"):
        history.acknowledge(A0, 1)


def test_an_acknowledgement_for_an_offset_where_another_record_was_seen_is_caught(
    history: PartitionHistory,
) -> None:
    history.see(0, B0)
    with pytest.raises(Violation, match="a consumer saw"):
        history.acknowledge(A0, 0)


def test_an_offset_that_changes_its_record_is_caught(history: PartitionHistory) -> None:
    history.see(0, A0)
    with pytest.raises(Violation, match="now holds"):
        history.see(0, B0)


def test_a_high_watermark_that_goes_back_is_caught(history: PartitionHistory) -> None:
    history.see_high_watermark(5)
    with pytest.raises(Violation, match="from 5 to 4"):
        history.see_high_watermark(4)


def test_a_value_survives_its_encoding() -> None:
    assert Value.decode(Value("client-1/x", 17).encode()) == Value("client-1/x", 17)
