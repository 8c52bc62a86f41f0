"""Requests that name partitions by topic, worked through in turns: a topic of very many partitions in pieces.

The response has each topic once, whole, in the order of the request.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from ottla.broker.pending import Pending
from ottla.broker.turns import Turns

TopicT = TypeVar("TopicT")
PartitionT = TypeVar("PartitionT")
ResultT = TypeVar("ResultT")
AnsweredT = TypeVar("AnsweredT")

PARTITIONS_PER_PIECE = 100


class _Piece(NamedTuple):
    topic: int
    partitions: slice
    is_whole: bool


def run_by_topic(
    turns: Turns,
    topics: Sequence[TopicT],
    partitions_of: "Callable[[TopicT], Sequence[PartitionT]]",
    work: "Callable[[TopicT, PartitionT], ResultT]",
    answer: "Callable[[TopicT, tuple[ResultT, ...]], AnsweredT]",
) -> Pending[list[AnsweredT]]:
    """What `answer` makes of each topic and the results of `work` for its partitions."""

    def do(piece: _Piece) -> Any:
        topic = topics[piece.topic]
        results = [work(topic, partition) for partition in partitions_of(topic)[piece.partitions]]
        return answer(topic, tuple(results)) if piece.is_whole else results

    def merge(done: list[Any]) -> list[AnsweredT]:
        merged: list[AnsweredT] = []
        parts: list[list[ResultT]] = []
        for index, (piece, result) in enumerate(zip(pieces, done, strict=True)):
            if piece.is_whole:
                merged.append(result)
                continue
            parts.append(result)
            if index + 1 == len(pieces) or pieces[index + 1].topic != piece.topic:
                merged.append(answer(topics[piece.topic], tuple(chain.from_iterable(parts))))
                parts = []
        return merged

    pieces = list(_cut(len(partitions_of(topic)) for topic in topics))
    return turns.run(pieces, do).then(merge)


def _cut(lengths: Iterable[int]) -> Iterator[_Piece]:
    step = PARTITIONS_PER_PIECE
    for topic, length in enumerate(lengths):
        if length <= step:
            yield _Piece(topic, slice(0, length), is_whole=True)
        else:
            for start in range(0, length, step):
                yield _Piece(topic, slice(start, start + step), is_whole=False)
