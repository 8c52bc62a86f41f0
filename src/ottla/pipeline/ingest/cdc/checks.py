"""Checks before the start that every captured database needs: the state folder and the topics."""

from collections.abc import Iterable, Iterator

from ottla.pipeline.stage import Context, Problem
from ottla.pipeline.topics import connect


def remote_state_problem(state: str, where: str) -> Problem:
    return Problem(
        where,
        f"The snapshot and the schema history cannot be kept in {state}.",
        "Set `checkpoints` to a folder of a file system that driver and executors see.",
    )


def topic_problems(wanted: Iterable[str], where: str, context: Context) -> Iterator[Problem]:
    present = connect(context.cluster).metadata().topics
    for topic in sorted(set(wanted) - context.topics - set(present)):
        yield Problem(
            where, f"There is no topic {topic}.", f"Make it, or add [topics.{topic}] to the pipeline."
        )


def wanted_topics(topic: str, of_tables: Iterable[str]) -> set[str]:
    """Where tables share one topic, it is wanted also while there are no tables."""
    return {*of_tables} if "{" in topic else {topic}
