"""What a truncated log must know of the records that remain. Reading it may take long, so a thread can do it first."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ottla.core.partition.producers import ProducerStateTable
from ottla.model.ids import NO_TIMESTAMP
from ottla.storage.producer_state import load_producers
from ottla.storage.segments import Segments

if TYPE_CHECKING:
    from ottla.storage.log import Log


class RemainingRecords(NamedTuple):
    """`max_timestamp` is the greatest timestamp of the segment that is cut, with the last offset of its batch.

    `producers` is None if the log had none.
    """

    max_timestamp: tuple[int, int]
    producers: ProducerStateTable | None


def prepare_read(log: "Log", offset: int) -> Callable[[], RemainingRecords]:
    """The work of reading what remains of `log` after it is truncated to `offset`.

    The work can run in any thread, as long as nobody changes the log. It raises OSError; FileNotFoundError may mean
    that retention has removed a file meanwhile.
    """
    segments = Segments(segment for segment in log.segments if segment.base_offset <= offset)
    has_producers = bool(len(log.producers))

    def read() -> RemainingRecords:
        if not len(segments):
            return RemainingRecords((NO_TIMESTAMP, offset), None)
        last = segments.active
        last.prepare()
        # A batch with `offset` is removed as a whole.
        found = last.find(offset) if last.size else None
        end_offset = offset if found is None else min(found.base_offset, offset)
        max_timestamp = last.read_max_timestamp(offset, last.size if found is None else found.position)
        producers = None
        if has_producers:
            producers = ProducerStateTable()
            load_producers(producers, log.snapshots, segments, end_offset)
        return RemainingRecords(max_timestamp, producers)

    return read
