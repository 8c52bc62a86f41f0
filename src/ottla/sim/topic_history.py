"""What clients were told about one topic from its creation to its deletion, and whether a log could have given it."""

from typing import NamedTuple

from ottla.sim.history import Violation


class Written(NamedTuple):
    key: bytes
    value: bytes


class TopicHistory:
    """Of one partition. A topic that is created again under the same name has another history."""

    def __init__(self, life: str) -> None:
        self.life = life  # in every value: which topic of this name it was written to
        self.acknowledged: dict[int, Written] = {}
        self.asked_start = 0  # the highest offset that DeleteRecords was asked for
        self.was_compacted = False

    @property
    def next_offset(self) -> int:
        """After the last record that was acknowledged."""
        return max(self.acknowledged, default=-1) + 1

    def check_bounds(self, log_start_offset: int, high_watermark: int) -> None:
        if log_start_offset > self.asked_start:
            raise Violation(
                f"{self.life} starts at offset {log_start_offset}; nobody asked to delete beyond {self.asked_start}"
            )
        if high_watermark < self.next_offset:
            raise Violation(
                f"the high watermark of {self.life} is {high_watermark}; offset {self.next_offset - 1} was acknowledged"
            )

    def check_log(self, log: dict[int, Written]) -> None:
        """`log` holds all that the partition has from `asked_start` on."""
        for offset, record in log.items():
            if not record.value.startswith(self.life.encode() + b"/"):
                raise Violation(
                    f"{self.life} holds {record} at offset {offset}, which was written to another"
                )
        last = {record.key: offset for offset, record in sorted(log.items())}
        for offset, record in self.acknowledged.items():
            if offset < self.asked_start or log.get(offset) == record:
                continue
            is_replaced = self.was_compacted and last.get(record.key, -1) > offset
            if offset in log or not is_replaced:
                raise Violation(
                    f"{record} was acknowledged at offset {offset} of {self.life}, which holds {log.get(offset)}"
                )
