"""The quota of replication: when it is exceeded, and for how long."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.core.replication_throttle import UNLIMITED, ReplicationQuota, ReplicationThrottle
from ottla.model.ids import TopicPartition

START_MS = 1_000_000


def quota(bytes_per_second: int) -> ReplicationQuota:
    made = ReplicationQuota(11, 1000)
    made.bytes_per_second = bytes_per_second
    return made


def throttle(node_id: int = 1, rate: int = 1000) -> ReplicationThrottle:
    made = ReplicationThrottle(node_id, 11, 1000)
    made.set_rate(rate)
    return made


def test_a_quota_without_records_or_without_a_limit_is_never_exceeded() -> None:
    assert quota(0).wait_ms(START_MS) == 0
    unlimited = quota(UNLIMITED)
    unlimited.record(1 << 40, START_MS)
    assert not unlimited.is_exceeded(START_MS)


def test_bytes_up_to_the_rate_do_not_exceed_it_in_the_first_second() -> None:
    some = quota(1000)
    some.record(1000, START_MS)
    assert not some.is_exceeded(START_MS)
    some.record(1, START_MS)
    assert some.is_exceeded(START_MS)


def test_a_burst_is_paid_back_at_the_rate() -> None:
    some = quota(1000)
    some.record(5000, START_MS)
    assert some.wait_ms(START_MS) == 5000
    assert some.wait_ms(START_MS + 3000) == 2000
    assert some.is_exceeded(START_MS + 4999)
    assert not some.is_exceeded(START_MS + 5000)


def test_a_burst_longer_than_the_window_is_forgotten_with_its_sample() -> None:
    some = quota(1)
    some.record(5000, START_MS)
    assert some.wait_ms(START_MS) == 11_000
    assert not some.is_exceeded(START_MS + 11_000)


def test_after_the_oldest_sample_the_rest_of_the_window_counts() -> None:
    some = quota(100)
    some.record(1000, START_MS)
    some.record(700, START_MS + 6000)
    # 1700 bytes need 17 s, but after 11 s the first thousand are forgotten. 700 bytes need 7 s from their own start.
    assert some.wait_ms(START_MS + 6000) == 7000


def test_with_a_rate_of_zero_records_pass_once_in_a_window_as_in_kafka() -> None:
    some = quota(0)
    some.record(1, START_MS)
    assert some.wait_ms(START_MS + 1000) == 10_000


def test_another_rate_counts_at_once() -> None:
    some = quota(1000)
    some.record(5000, START_MS)
    some.bytes_per_second = 10_000
    assert not some.is_exceeded(START_MS)


@given(
    st.integers(1, 10_000),
    st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 100_000)), max_size=30),
)
def test_the_wait_is_exact(rate: int, events: list[tuple[int, int]]) -> None:
    """The quota is exceeded until the wait is over, and then it is not."""
    some, now_ms = quota(rate), START_MS
    for pause_ms, size in events:
        now_ms += pause_ms
        some.record(size, now_ms)
    wait_ms = some.wait_ms(now_ms)
    if wait_ms:
        assert some.is_exceeded(now_ms + wait_ms - 1)
    assert not some.is_exceeded(now_ms + wait_ms)


@given(st.integers(100, 10_000), st.integers(1, 50_000))
def test_a_sender_that_waits_keeps_to_the_rate(rate: int, size: int) -> None:
    some, now_ms, sent = quota(rate), START_MS, 0
    while now_ms < START_MS + 60_000:
        now_ms += some.wait_ms(now_ms)
        some.record(size, now_ms)
        sent += size
        now_ms += 1
    # The last bytes are not paid for yet, and a burst of more than a window is never paid for completely.
    assert sent <= rate * 60 + size * 2 or size > rate * 11


def test_only_the_listed_partitions_of_this_broker_are_covered() -> None:
    some = throttle(node_id=1)
    some.set_replicas("journal", ("0:1", "1:2", "2:11", "3:1"))
    covered = [index for index in range(5) if some.covers(TopicPartition("journal", index))]
    assert covered == [0, 3]
    assert not some.covers(TopicPartition("other", 0))


def test_a_star_covers_all_partitions_of_the_topic() -> None:
    some = throttle()
    some.set_replicas("journal", ("*",))
    assert some.covers(TopicPartition("journal", 77))
    assert not some.covers(TopicPartition("other", 0))


@pytest.mark.parametrize("replicas", [(), ("0:2",), ("",), ("x:1",)])
def test_without_replicas_here_a_throttle_is_not_active(replicas: tuple[str, ...]) -> None:
    some = throttle()
    some.set_replicas("journal", ("*",))
    some.record(100_000, START_MS)
    assert some.is_active
    assert some.wait_ms(START_MS) > 0
    some.set_replicas("journal", replicas)
    assert not some.is_active
    assert some.wait_ms(START_MS) == 0


def test_without_a_rate_a_throttle_is_not_active() -> None:
    some = throttle(rate=UNLIMITED)
    some.set_replicas("journal", ("*",))
    assert not some.is_active
