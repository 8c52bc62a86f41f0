"""Records that a query was to read and that are gone: an error, or with failOnDataLoss=false a warning."""

import warnings
from collections.abc import Iterator, Mapping

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.spark.offsets import TopicPartition

REMEDY = (
    "Restore the topic, or set failOnDataLoss=false to go on with what is left; a new checkpoint begins anew."
)


def report(what: str, fail_on_data_loss: bool) -> None:
    if fail_on_data_loss:
        raise PipelineError(what, REMEDY)
    warnings.warn(f"{what} The query goes on without (failOnDataLoss=false).", stacklevel=2)


def losses(
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
