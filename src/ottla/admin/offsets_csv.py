"""Offsets of a group as CSV, in the format of Kafka's own tool: topic,partition,offset.

For several groups that tool writes group,topic,partition,offset; such a file can be read too.
"""

import csv
import io
from collections.abc import Iterable

from ottla.admin.reset_plan import PlannedReset
from ottla.model.ids import TopicPartition


def write_offsets(plan: Iterable[PlannedReset]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        (line.topic, line.partition, line.new_offset) for line in plan
    )
    return text.getvalue()


def read_offsets(text: str, group: str) -> dict[TopicPartition, int]:
    """The offsets for `group`. Raises ValueError, with the number of the line, if one cannot be read."""
    offsets: dict[TopicPartition, int] = {}
    for number, row in enumerate(csv.reader(io.StringIO(text)), 1):
        if not row:
            continue
        if len(row) not in (3, 4):
            raise ValueError(f"line {number}: expected topic,partition,offset, got {','.join(row)!r}")
        topic, partition, offset = (cell.strip() for cell in row[-3:])
        if not (_is_number(partition) and _is_number(offset)):
            raise ValueError(
                f"line {number}: partition and offset must be whole numbers from 0, got {','.join(row)!r}"
            )
        if len(row) == 3 or row[0].strip() == group:
            topic_partition = TopicPartition(topic, int(partition))
            if topic_partition in offsets:
                raise ValueError(f"line {number}: {topic_partition} has an offset already")
            offsets[topic_partition] = int(offset)
    if not offsets:
        raise ValueError(f"it has no offset for group {group}")
    return offsets


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and int(text) < 2**63
