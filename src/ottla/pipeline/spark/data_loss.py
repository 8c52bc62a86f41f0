"""Records that a query was to read and that are gone: an error, or with failOnDataLoss=false a warning."""

import warnings
from collections.abc import Iterator, Mapping

from ottla.model.ids import TopicPartition
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.spark.offsets import OffsetRange
from ottla.pipeline.spark.options import ReadOptions

REMEDY = (
    "Restore the topic, or set failOnDataLoss=false to go on with what is left; a new checkpoint begins anew."
)


def report_loss(what: str, fail_on_data_loss: bool) -> None:
    if fail_on_data_loss:
        raise PipelineError(what, REMEDY)
    warnings.warn(f"{what} The query goes on without (failOnDataLoss=false).", stacklevel=2)


def position_after_loss(options: ReadOptions, wanted: OffsetRange, position: int) -> int:
    """Where to go on when `position` is not in the log, if the options allow it."""
    # A worker may start for every task, and few of them lose anything.
    from ottla.pipeline.spark.discovery import Discovery

    discovery = Discovery(options)
    follows = wanted.end
    if wanted.at in discovery.partitions():
        earliest, latest = (find([wanted.at])[wanted.at] for find in (discovery.earliest, discovery.latest))
        if earliest <= position <= latest:
            # It was away for a moment, as when the leader changes.
            return position
        if position < earliest:
            follows = min(earliest, wanted.end)
    lost = f"{position} to {follows - 1}"
    report_loss(
        f"{wanted.at} has no offset {position} any more: {lost} cannot be read.", options.fail_on_data_loss
    )
    return follows


def recreated_topics(known: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    """By their ids: what stands at the offsets that were read, and behind them, is not what stood there."""
    for topic, topic_id in sorted(known.items()):
        if now.get(topic, topic_id) != topic_id:
            yield f"The topic {topic} was deleted and made anew: its id was {topic_id}, and is now {now[topic]}."


def find_losses(
    read_up_to: Mapping[TopicPartition, int],
    earliest: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
) -> Iterator[str]:
    """What of `read_up_to` the logs no longer bear out; a partition is gone where `latest` does not have it."""
    for at, offset in sorted(read_up_to.items()):
        if at not in latest:
            yield f"{at} is gone: it was read up to offset {offset}."
        elif latest[at] < offset:
            yield f"{at} ends at offset {latest[at]}, and was read up to {offset}: it was made anew or cut off."
        elif earliest[at] > offset:
            yield f"{at} now begins at offset {earliest[at]}: {offset} to {earliest[at] - 1} were deleted unread."
