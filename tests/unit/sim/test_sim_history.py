"""The history detects every violation that it checks for."""

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
        pytest.param([(0, A0), (2, A1)], "not dense: after 0 comes 2", id="a gap"),
        pytest.param([(1, A0)], "not dense", id="a lost start"),
        pytest.param([(0, A0), (1, A0)], "holds number 0 of a, expected 1", id="a duplicate"),
        pytest.param([(0, A1), (1, A0)], "holds number 1 of a, expected 0", id="out of order"),
        pytest.param([(0, A0), (1, A2)], "holds number 2 of a, expected 1", id="a missing record"),
        pytest.param([(0, Value("c", 0))], "no producer sent", id="an unknown record"),
        pytest.param([(0, B0), (1, A0)], "acknowledged at offset 0, which holds", id="moved"),
        pytest.param([], "acknowledged at offset 0, which holds None", id="lost"),
    ],
)
def test_a_log_that_breaks_a_guarantee_is_detected(
    history: PartitionHistory, log: list[tuple[int, Value]], message: str
) -> None:
    history.acknowledge(A0, 0)
    with pytest.raises(Violation, match=message):
        history.check_log(log)


def test_the_loss_of_a_record_that_a_consumer_saw_is_detected(history: PartitionHistory) -> None:
    history.see(0, A0)
    with pytest.raises(Violation, match="a consumer saw"):
        history.check_log([])


def test_a_second_offset_for_an_acknowledged_record_is_detected(history: PartitionHistory) -> None:
    history.acknowledge(A0, 0)
    with pytest.raises(Violation, match="and again at 1"):
        history.acknowledge(A0, 1)


def test_an_acknowledged_offset_at_which_a_consumer_saw_another_record_is_detected(
    history: PartitionHistory,
) -> None:
    history.see(0, B0)
    with pytest.raises(Violation, match="a consumer saw"):
        history.acknowledge(A0, 0)


def test_a_changed_record_is_detected(history: PartitionHistory) -> None:
    history.see(0, A0)
    with pytest.raises(Violation, match="now holds"):
        history.see(0, B0)


def test_a_high_watermark_that_goes_back_is_detected(history: PartitionHistory) -> None:
    history.see_high_watermark(5)
    with pytest.raises(Violation, match="from 5 to 4"):
        history.see_high_watermark(4)


def test_a_value_survives_encoding_and_decoding() -> None:
    assert Value.decode(Value("client-1/x", 17).encode()) == Value("client-1/x", 17)
