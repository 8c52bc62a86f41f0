"""Timers are added, cancelled and expired, with overflow wheels for long deadlines."""

from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from ottla.core.timing_wheel import Timer, TimingWheel


def items(timers: list[Timer[str]]) -> list[str]:
    return [timer.item for timer in timers]


def test_a_timer_expires_at_its_deadline_and_not_before() -> None:
    wheel: TimingWheel[str] = TimingWheel(1000)
    wheel.add("a", 1007)
    assert wheel.advance(1006) == []
    assert items(wheel.advance(1007)) == ["a"]
    assert wheel.advance(1008) == []
    assert len(wheel) == 0


def test_level_1_has_1_ms_ticks_level_2_has_20_ms_level_3_has_400_ms() -> None:
    for delay in (1, 19, 20, 399, 400, 7999, 8000, 160_000, 7 * 24 * 3_600_000):
        wheel: TimingWheel[str] = TimingWheel(123)
        wheel.add("a", 123 + delay)
        assert wheel.advance(123 + delay - 1) == []
        assert items(wheel.advance(123 + delay)) == ["a"]


def test_buckets_of_two_wheels_with_the_same_start_both_expire() -> None:
    wheel: TimingWheel[str] = TimingWheel(0)
    wheel.add("far", 400)  # in the third wheel
    wheel.advance(20)
    wheel.add("near", 400)  # in the second wheel, whose bucket starts at 400 too
    wheel.advance(390)
    wheel.add("nearest", 400)  # in the first
    assert items(wheel.advance(400)) == ["far", "near", "nearest"]
    assert wheel.next_deadline_ms() is None


def test_a_deadline_in_the_past_expires_at_the_next_advance_even_without_time_passing() -> None:
    wheel: TimingWheel[str] = TimingWheel(1000)
    wheel.add("b", 990)
    wheel.add("a", 980)
    assert wheel.next_deadline_ms() == 1000
    assert items(wheel.advance(1000)) == ["a", "b"]


def test_a_cancelled_timer_is_removed_and_never_expires() -> None:
    wheel: TimingWheel[str] = TimingWheel(0)
    timer = wheel.add("a", 50)
    assert wheel.cancel(timer)
    assert not wheel.cancel(timer)
    assert len(wheel) == 0
    assert wheel.next_deadline_ms() is None
    assert wheel.advance(100) == []


def test_an_expired_timer_cannot_be_cancelled() -> None:
    wheel: TimingWheel[str] = TimingWheel(0)
    timer = wheel.add("a", 5)
    wheel.advance(5)
    assert not wheel.cancel(timer)
    assert len(wheel) == 0


def test_a_clock_that_steps_back_expires_nothing_and_loses_nothing() -> None:
    wheel: TimingWheel[str] = TimingWheel(1000)
    wheel.add("a", 1010)
    assert wheel.advance(900) == []
    wheel.add("b", 1005)
    assert items(wheel.advance(1010)) == ["b", "a"]


def test_a_clock_that_jumps_by_years_expires_all_timers_in_order() -> None:
    wheel: TimingWheel[str] = TimingWheel(0)
    for delay in (5, 70_000, 500, 3_600_000):
        wheel.add(str(delay), delay)
    assert items(wheel.advance(10 * 365 * 24 * 3_600_000)) == ["5", "500", "70000", "3600000"]


def test_advancing_at_each_next_deadline_expires_every_timer_on_time() -> None:
    wheel: TimingWheel[str] = TimingWheel(17)
    deadlines = [18, 37, 500, 501, 8017, 30_017, 3_000_000]
    for deadline in deadlines:
        wheel.add(str(deadline), deadline)
    seen = []
    wakeups = 0
    while (at := wheel.next_deadline_ms()) is not None:
        wakeups += 1
        for timer in wheel.advance(at):
            assert timer.deadline_ms == at
            seen.append(timer.deadline_ms)
    assert seen == deadlines
    assert wakeups <= 6 * len(deadlines)  # at most one for each wheel that a timer passes through


steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.one_of(st.integers(-5, 60), st.integers(0, 200_000))),
        st.tuples(st.just("add where buckets start"), st.integers(1, 25)),
        st.tuples(st.just("cancel"), st.integers(0, 100)),
        st.tuples(st.just("advance"), st.one_of(st.integers(-3, 50), st.integers(0, 100_000))),
    ),
    max_size=60,
)


@examples(200)
@given(start=st.integers(0, 10_000), script=steps)
def test_the_wheel_behaves_like_a_sorted_list(start: int, script: list[tuple[str, int]]) -> None:
    wheel: TimingWheel[int] = TimingWheel(start)
    model: dict[int, int] = {}
    timers: list[Timer[int]] = []
    now = start
    for action, value in script:
        if action.startswith("add"):
            deadline = now + value if action == "add" else (now // 400 + value) * 400
            timers.append(wheel.add(len(timers), deadline))
            model[len(timers) - 1] = deadline
        elif action == "cancel" and timers:
            number = value % len(timers)
            assert wheel.cancel(timers[number]) == (model.pop(number, None) is not None)
        elif action == "advance":
            now = max(now, now + value)
            due = sorted(deadline for deadline in model.values() if deadline <= now)
            expired = wheel.advance(now)
            assert [timer.deadline_ms for timer in expired] == due
            for timer in expired:
                assert model.pop(timer.item) == timer.deadline_ms
        assert len(wheel) == len(model)
        upcoming = wheel.next_deadline_ms()
        if model:
            assert upcoming is not None
            assert upcoming <= max(now, min(model.values()))
        else:
            assert upcoming is None
