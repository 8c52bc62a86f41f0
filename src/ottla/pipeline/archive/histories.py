"""The histories of a topic in an archive.

A topic that is deleted and created again has another id (KIP-516), and its offsets begin at 0 again. So its records get
a history of their own: ranges, files and a folder. The first history of a topic has the topic's name, a later one is
TOPIC@ID.
"""

from collections.abc import Iterable, Mapping

from ottla.model.ids import TopicPartition
from ottla.pipeline.archive.layout import later_history, topic_of
from ottla.pipeline.archive.manifest import Summary
from ottla.pipeline.spark.offsets import Offsets


def histories_of(archived: Summary, topic: str) -> list[str]:
    return [history for history in archived.histories if topic_of(history) == topic]


def histories_in_order(archived: Summary, topic: str) -> list[str]:
    """In the order in which they were archived. The ids are in that order; an archive of an older Ottla has no id."""
    order = {history: number for number, history in enumerate(archived.topic_ids)}
    return sorted(
        histories_of(archived, topic), key=lambda history: (history != topic, order.get(history, 0))
    )


def history_of(archived: Summary, topic: str, topic_id: str | None) -> str:
    """The history to which the records of a topic with this id belong. It need not exist yet.

    An archive of an older Ottla does not have the id of its history. Then the topic continues it.
    """
    if topic_id is None or archived.topic_ids.get(topic, topic_id) == topic_id:
        return topic
    return later_history(topic, topic_id)


def current_histories(
    archived: Summary, topics: Iterable[str], topic_ids: Mapping[str, str]
) -> dict[str, str]:
    """The history of each topic as the cluster has it now; `topic_ids` are the cluster's."""
    return {topic: history_of(archived, topic, topic_ids.get(topic)) for topic in topics}


def archived_ends(archived: Summary, current: Mapping[str, str]) -> Offsets:
    """Up to where the partitions of the topics are archived, by the names of the topics on the cluster."""
    topics = {history: topic for topic, history in current.items()}
    return {
        TopicPartition(topics[at.topic], at.partition): end
        for at, end in archived.ends.items()
        if at.topic in topics
    }
