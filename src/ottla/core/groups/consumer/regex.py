"""Subscriptions by regular expression, resolved by the coordinator (KIP-848)."""

from ottla.core.groups.state import ClusterTopics
from ottla.model.regex import compile_regex
from ottla.model.topics import is_internal

_PATTERNS_MAX = 1024  # in the cache


def check_regex(regex: str) -> None:
    """Raises INVALID_REGULAR_EXPRESSION if RE2 cannot compile it."""
    compile_regex(regex, "SubscribedTopicRegex")


class RegexResolver:
    """Matches regular expressions against the names of the cluster's topics, each once against each name."""

    def __init__(self) -> None:
        self._seen_version = -1
        self._names: frozenset[str] = frozenset()
        self._names_version = -1
        self._matches: dict[
            str, tuple[frozenset[str], frozenset[str]]
        ] = {}  # (names tried, names that match)

    def names_version(self, topics: ClusterTopics) -> int:
        """The metadata version at which the set of topics last changed, as far as this object has seen it."""
        version = topics.version
        if version != self._seen_version:
            self._seen_version = version
            names = frozenset(name for name in topics.names() if not is_internal(name))
            if names != self._names or self._names_version < 0:
                self._names = names
                self._names_version = version
        return self._names_version

    def resolve(self, regex: str, topics: ClusterTopics) -> frozenset[str]:
        """The topics whose whole name matches, without internal topics."""
        self.names_version(topics)
        looked_at, matches = self._matches.get(regex, (frozenset(), frozenset()))
        if looked_at is not self._names:
            matches_whole = compile_regex(regex, "SubscribedTopicRegex").fullmatch
            found = {name for name in self._names - looked_at if matches_whole(name)}
            matches = (matches & self._names) | found
            if len(self._matches) >= _PATTERNS_MAX:
                self._matches.clear()
            self._matches[regex] = (self._names, matches)
        return matches
