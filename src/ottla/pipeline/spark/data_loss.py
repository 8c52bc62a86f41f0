"""Reports records that a query should read and that are gone: an error, or a warning with failOnDataLoss=false."""

import warnings
from collections.abc import Iterator, Mapping

from ottla.model.ids import TopicPartition
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.spark.offsets import OffsetRange
from ottla.pipeline.spark.options import ReadOptions

_REMEDY = (
    "Restore the topic, or set failOnDataLoss=false (in pipeline.toml: fail_on_data_loss = false) to continue with "
    "the records that are left. To start from the beginning, use a new checkpoint."
)


def report_loss(what: str, fail_on_data_loss: bool) -> None:
    if fail_on_data_loss:
        raise PipelineError(what, _REMEDY)
    warnings.warn(f"{what} The query continues without them (failOnDataLoss=false).", stacklevel=2)


def position_after_loss(options: ReadOptions, wanted: OffsetRange, position: int) -> int:
    """Where to continue if `position` is not in the log. Raises PipelineError unless the options allow data loss."""
    # Imported here because a Python worker may start for every task, and few of them lose anything.
    from ottla.pipeline.spark.discovery import Discovery

    discovery = Discovery(options)
    next_offset = wanted.end
    if wanted.at in discovery.partitions():
        earliest, latest = (find([wanted.at])[wanted.at] for find in (discovery.earliest, discovery.latest))
        if earliest <= position <= latest:
            # It was not available for a moment, as when the leader changes.
            return position
        if position < earliest:
            next_offset = min(earliest, wanted.end)
    lost = f"{position} to {next_offset - 1}"
    report_loss(
        f"{wanted.at} no longer has offset {position}: {lost} cannot be read.", options.fail_on_data_loss
    )
    return next_offset


def log_ends_before(options: ReadOptions, wanted: OffsetRange, position: int) -> bool:
    """Whether the rest of the range, from `position` on, is lost because the log is shorter. Raises as above.

    For a reader that got nothing for its poll timeout, and not earlier: a log seems to end before the range for a while
    after its leader changed, or on a replica that is behind (KIP-392), because the high watermark lags.
    """
    from ottla.pipeline.spark.discovery import Discovery

    discovery = Discovery(options)
    if wanted.at not in discovery.partitions():
        return False
    latest = discovery.latest([wanted.at])[wanted.at]
    if latest > position or position >= wanted.end:
        return False
    lost = f"{position} to {wanted.end - 1}"
    report_loss(f"{wanted.at} ends at offset {latest}: {lost} cannot be read.", options.fail_on_data_loss)
    return True


def recreated_topics(known: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    """Topics whose id changed: their records are no longer those that were read."""
    for topic, topic_id in sorted(known.items()):
        if now.get(topic, topic_id) != topic_id:
            yield f"The topic {topic} was deleted and created again: its id was {topic_id}, and is now {now[topic]}."


def find_losses(
    read_up_to: Mapping[TopicPartition, int],
    earliest: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
) -> Iterator[str]:
    """Compares the offsets up to which partitions were read with their logs. A partition is gone if not in `latest`."""
    for at, offset in sorted(read_up_to.items()):
        if at not in latest:
            yield f"{at} is gone: it was read up to offset {offset}."
        elif latest[at] < offset:
            yield f"{at} ends at offset {latest[at]}, and was read up to {offset}: it was created again or truncated."
        elif earliest[at] > offset:
            deleted = f"{offset} to {earliest[at] - 1}"
            yield f"{at} now starts at offset {earliest[at]}: {deleted} were deleted before they were read."
