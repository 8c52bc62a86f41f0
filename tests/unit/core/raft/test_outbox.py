"""The outstanding requests of a node of the quorum."""

from ottla.core.raft.messages import FetchRequest
from ottla.core.raft.outbox import OBSERVER_BACKOFF_MS_MAX, UNREACHABLE_BACKOFF_MS_MAX, Outbox

REQUEST = FetchRequest(1, 1, 0, 0, 0)


def pauses_ms(outbox: Outbox, count: int) -> list[int]:
    found = []
    for _ in range(count):
        outbox.take(outbox.send(2, REQUEST).number, 2)
        outbox.pause_unreachable(2, 1_000)
        found.append(outbox.next_retry_ms - 1_000)
    return found


def test_the_pauses_before_an_unreachable_node_is_asked_again_get_longer() -> None:
    assert pauses_ms(Outbox(20), 5) == [20, 40, 80, 100, 100]


def test_the_pauses_of_an_observer_get_longer_than_those_of_a_voter() -> None:
    assert pauses_ms(Outbox(20, OBSERVER_BACKOFF_MS_MAX), 8) == [20, 40, 80, 160, 320, 640, 1_000, 1_000]


def test_a_configured_backoff_that_is_longer_stays_as_it_is() -> None:
    backoff_ms = 3 * UNREACHABLE_BACKOFF_MS_MAX
    assert pauses_ms(Outbox(backoff_ms), 3) == [backoff_ms] * 3


def test_without_a_backoff_there_are_no_pauses() -> None:
    assert pauses_ms(Outbox(0), 3) == [0, 0, 0]


def test_a_response_makes_the_next_pause_short_again() -> None:
    outbox = Outbox(20)
    pauses_ms(outbox, 5)
    outbox.reached(2)
    assert pauses_ms(outbox, 1) == [20]


def test_a_node_that_responds_with_an_error_is_asked_again_after_the_same_pause() -> None:
    outbox = Outbox(20)
    for _ in range(3):
        outbox.pause(2, 1_000)
        assert outbox.next_retry_ms == 1_020
