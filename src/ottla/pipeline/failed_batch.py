"""The batch in which a query failed, from what Spark tells of the query, so that a person can look there."""

import re

from ottla.pipeline.progress import topic_offsets

OFFSETS = re.compile(r"^Current (Committed|Available) Offsets: \{[^{]*?: (\{.*\})\}$", re.MULTILINE)


def batch_said(text: str) -> str:
    """A sentence that names the offsets of the batch; nothing where Spark does not tell them, or not of topics."""
    told = {kind: topic_offsets(offsets) or {} for kind, offsets in OFFSETS.findall(text)}
    done = told.get("Committed", {})
    ranges = [
        f"{topic}-{partition}: {start} to {end - 1}"
        for topic, partitions in told.get("Available", {}).items()
        for partition, end in partitions.items()
        if (start := done.get(topic, {}).get(partition, 0)) < end
    ]
    if not ranges:
        return ""
    return f" It was in the batch with the offsets {', '.join(ranges)}, which runs again at the next start."
