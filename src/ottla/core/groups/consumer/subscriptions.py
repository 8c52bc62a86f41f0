"""The subscriptions of a group's members, by name and by regular expression, counted so that changes are cheap."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ottla.core.groups.consumer.member import ConsumerGroupMember


class ResolvedRegex(NamedTuple):
    """The topics that a regular expression matched, at which metadata version, and when."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class Subscriptions:
    """`by_name` and `by_regex` count members; `by_resolved` counts resolved expressions per topic."""

    def __init__(self) -> None:
        self.by_name: dict[str, int] = {}
        self.by_regex: dict[str, int] = {}
        self.by_resolved: dict[str, int] = {}
        self.resolved: dict[str, ResolvedRegex] = {}

    def add(self, member: ConsumerGroupMember) -> None:
        add_counts(self.by_name, member.metadata.subscribed_topic_names, 1)
        if member.regex:
            add_counts(self.by_regex, (member.regex,), 1)

    def remove(self, member: ConsumerGroupMember) -> None:
        add_counts(self.by_name, member.metadata.subscribed_topic_names, -1)
        if member.regex:
            add_counts(self.by_regex, (member.regex,), -1)

    def resolve(self, regex: str, resolved: ResolvedRegex | None) -> None:
        old = self.resolved.pop(regex, None)
        if old is not None:
            add_counts(self.by_resolved, old.topics, -1)
        if resolved is not None:
            self.resolved[regex] = resolved
            add_counts(self.by_resolved, resolved.topics, 1)

    def names(self) -> Iterator[str]:
        """The topics of all members, without duplicates."""
        yield from self.by_name
        for name in self.by_resolved:
            if name not in self.by_name:
                yield name

    def names_of(self, member: ConsumerGroupMember) -> frozenset[str]:
        """A regular expression that is not resolved yet matches no topic."""
        names = frozenset(member.metadata.subscribed_topic_names)
        resolved = self.resolved.get(member.regex) if member.regex else None
        return names if resolved is None else names | resolved.topics

    def __contains__(self, name: str) -> bool:
        return name in self.by_name or name in self.by_resolved


def add_counts(counts: dict[str, int], names: Iterable[str], by: int) -> None:
    """Adds `by` to the count of each name; removes counts of 0."""
    for name in names:
        total = counts.get(name, 0) + by
        if total:
            counts[name] = total
        else:
            counts.pop(name, None)
