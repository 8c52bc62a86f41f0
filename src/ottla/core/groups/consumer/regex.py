"""Subscriptions by regular expression, evaluated by the coordinator (KIP-848).

The expressions are RE2's, as in Kafka: they match in time linear in the name, whatever a client thinks up
(docs/decisions/0005-re2-for-subscriptions.md).
"""

from functools import lru_cache
from typing import Any

from ottla.core.groups.topics import ClusterTopics
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.topics import is_internal

_PATTERNS_MAX = 1024  # that are kept


def check_regex(regex: str) -> None:
    """Raises INVALID_REGULAR_EXPRESSION where it is not one of RE2's."""
    import re2

    try:
        _compiled(regex)
    except re2.error as error:
        (reason,) = error.args
        raise KafkaError(
            ErrorCode.invalid_regular_expression,
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: "
            f"{reason.decode(errors='replace') if isinstance(reason, bytes) else reason}. "
            "The syntax is that of RE2.",
        ) from None


class RegexResolver:
    """Matches expressions against the names of the cluster's topics, each expression once against each name."""

    def __init__(self) -> None:
        self._seen_version = -1
        self._names: frozenset[str] = frozenset()
        self._names_version = -1
        self._matches: dict[str, tuple[frozenset[str], frozenset[str]]] = {}  # against what, and what matched

    def names_version(self, topics: ClusterTopics) -> int:
        """The version of the metadata at which topics last came or went, as far as it was looked at."""
        version = topics.version
        if version != self._seen_version:
            self._seen_version = version
            names = frozenset(name for name in topics.names() if not is_internal(name))
            if names != self._names or self._names_version < 0:
                self._names = names
                self._names_version = version
        return self._names_version

    def resolve(self, regex: str, topics: ClusterTopics) -> frozenset[str]:
        """The topics whose whole name matches, internal ones left out."""
        self.names_version(topics)
        looked_at, matches = self._matches.get(regex, (frozenset(), frozenset()))
        if looked_at is not self._names:
            matches_whole = _compiled(regex).fullmatch
            found = {name for name in self._names - looked_at if matches_whole(name)}
            matches = (matches & self._names) | found
            if len(self._matches) >= _PATTERNS_MAX:
                self._matches.clear()
            self._matches[regex] = (self._names, matches)
        return matches


@lru_cache(_PATTERNS_MAX)
def _compiled(regex: str) -> Any:
    # Few brokers have groups with expressions, and the library takes its time to load.
    import re2

    options = re2.Options()
    options.log_errors = False
    return re2.compile(regex, options=options)
