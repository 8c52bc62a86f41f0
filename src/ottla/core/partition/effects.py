"""The effects of an event on a partition, which the shell carries out."""

from typing import NamedTuple


class Effects(NamedTuple):
    """What an event changed: offsets that requests wait for, the ISR, and an ISR to propose to the controller.

    A follower's log must not start before `delete_before`: the leader has deleted those records. `low_watermark_moved`
    says that it may have moved: whether it has depends on which brokers are alive.
    """

    log_end_moved: bool = False
    high_watermark_moved: bool = False
    log_start_moved: bool = False
    low_watermark_moved: bool = False
    isr_changed: bool = False
    proposed_isr: tuple[int, ...] | None = None
    delete_before: int | None = None


NO_EFFECTS = Effects()
HIGH_WATERMARK_MOVED = Effects(high_watermark_moved=True)
LOG_END_MOVED = Effects(log_end_moved=True)
