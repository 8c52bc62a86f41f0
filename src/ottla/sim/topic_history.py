"""Records what clients did to one topic from its creation to its deletion, and checks its log."""

from typing import NamedTuple

from ottla.sim.history import Violation


class Written(NamedTuple):
    key: bytes
    value: bytes


class TopicHistory:
    """The history of one partition. A topic that is created again under the same name gets a new history."""

    def __init__(self, incarnation: str) -> None:
        # Every value begins with it, to show which topic of the same name it was written to.
        self.incarnation = incarnation
        self.acknowledged: dict[int, Written] = {}
        self.requested_start = 0  # the highest offset in a DeleteRecords request
        self.was_compacted = False

    @property
    def next_offset(self) -> int:
        """The offset after the last acknowledged record."""
        return max(self.acknowledged, default=-1) + 1

    def check_bounds(self, log_start_offset: int, high_watermark: int) -> None:
        if log_start_offset > self.requested_start:
            raise Violation(
                f"{self.incarnation} starts at offset {log_start_offset}, but DeleteRecords requested only "
                f"{self.requested_start}"
            )
        if high_watermark < self.next_offset:
            raise Violation(
                f"the high watermark of {self.incarnation} is {high_watermark}, but offset {self.next_offset - 1} was "
                "acknowledged"
            )

    def check_log(self, log: dict[int, Written]) -> None:
        """`log` is the whole partition from `requested_start` on."""
        for offset, record in log.items():
            if not record.value.startswith(self.incarnation.encode() + b"/"):
                raise Violation(
                    f"{self.incarnation} holds {record} at offset {offset}, which was written to an earlier topic"
                )
        last = {record.key: offset for offset, record in sorted(log.items())}
        for offset, record in self.acknowledged.items():
            if offset < self.requested_start or log.get(offset) == record:
                continue
            is_compacted = self.was_compacted and last.get(record.key, -1) > offset
            if offset in log or not is_compacted:
                raise Violation(
                    f"{record} was acknowledged at offset {offset} of {self.incarnation}, which holds {log.get(offset)}"
                )
