"""What a person is told when a batch of a transform dies: the reason, the offsets it is among, and what to do."""

import json
import re

from ottla.pipeline.errors import PassingError, PipelineError
from ottla.pipeline.failures import OURS, PLAN, failure_from

OFFSETS = re.compile(r"^Current (Committed|Available) Offsets: \{[^{]*?: (\{.*\})\}$", re.MULTILINE)
# What Spark says before the reason itself.
PREFACE = re.compile(r"^Query \[.*?\] terminated with exception: (?:\[[A-Z0-9_.]+\] )?")
REFUSED = "[USER_RAISED_EXCEPTION]"

Offsets = dict[str, dict[str, int]]


def explained(stage: str, text: str) -> PipelineError:
    """From the text of the exception with which a query of the transform `stage` ended."""
    failure = failure_from(text)
    reason = PREFACE.sub("", failure.sentence)
    if failure.is_passing:
        return PassingError(f"The transform {stage} was interrupted: {reason}", "It goes on where it was.")
    if OURS.search(text.partition(PLAN)[0]) or REFUSED in text:
        return PipelineError(reason, "Nothing of the batch was written twice or is lost.")
    return PipelineError(
        f"A batch of the transform {stage} failed, with {ranges_said(text)}: {reason}",
        "If it is one record, mark such records instead of raising (`try_cast` in SQL, `reject` and `guard` in Python)"
        " and start it again: the batch runs once more, and nothing is lost.",
    )


def ranges_said(text: str) -> str:
    """The offsets of the batch, as `raw-0: 17 to 99`, from what Spark tells of the query that failed."""
    told = {kind: parsed(offsets) for kind, offsets in OFFSETS.findall(text)}
    done = told.get("Committed", {})
    ranges = [
        f"{topic}-{partition}: {start} to {end - 1}"
        for topic, partitions in told.get("Available", {}).items()
        for partition, end in partitions.items()
        if (start := done.get(topic, {}).get(partition, 0)) < end
    ]
    return f"the offsets {', '.join(ranges)}" if ranges else "offsets that Spark did not tell"


def parsed(offsets: str) -> Offsets:
    try:
        return dict(json.loads(offsets))
    except ValueError:
        return {}
