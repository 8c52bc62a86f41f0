"""The simulated client rejects polls that go backwards."""

import pytest

from ottla.records.records import Record, build_batch
from ottla.sim.client import check_order
from ottla.sim.history import Violation


def batch(*offsets: int) -> bytes:
    return build_batch([Record(offset, 0, b"key", None) for offset in offsets])


@pytest.mark.parametrize(
    ("records", "offset"),
    [
        (b"", 3),
        (batch(3, 4), 3),
        (batch(1, 2, 3), 3),
        (batch(3) + batch(4, 5), 3),
        (batch(5) + batch(9), 3),  # compaction leaves gaps
        (batch(3) + batch(4, 5)[:70], 3),
        (batch(3) + batch(2)[:20], 3),  # without a whole header nobody reads it
    ],
)
def test_polls_go_forward(records: bytes, offset: int) -> None:
    check_order(records, offset)


@pytest.mark.parametrize(
    ("records", "found", "expected"),
    [
        (batch(1, 2), "1 to 2", 3),
        (batch(2) + batch(3), "2 to 2", 3),
        (batch(3, 4) + batch(4, 5), "4 to 5", 5),
        (batch(3) + batch(3), "3 to 3", 4),
    ],
)
def test_a_batch_that_was_read_is_a_violation(records: bytes, found: str, expected: int) -> None:
    with pytest.raises(Violation, match=f"non-monotonic poll: .* offsets {found} where {expected} is next"):
        check_order(records, 3)
