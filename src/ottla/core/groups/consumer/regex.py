"""Subscriptions by regular expression, evaluated by the coordinator (KIP-848).

The expressions are RE2's, as in Kafka: they match in time linear in the name, whatever a client thinks up
(docs/decisions/0005-re2-for-subscriptions.md).
"""

from functools import lru_cache
from typing import Any

from ottla.core.groups.topics import ClusterTopics
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.topics import is_internal

_PATTERNS_MAX = 1024  # compiled ones that are kept


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
    """Matches expressions against the names of the cluster's topics, each expression once for the same names."""

    def __init__(self) -> None:
        self._seen_version = -1
        self._names: tuple[str, ...] = ()
        self._names_version = -1
        self._matches: dict[str, frozenset[str]] = {}

    def names_version(self, topics: ClusterTopics) -> int:
        """The version of the metadata at which topics last came or went, as far as it was looked at."""
        version = topics.version
        if version != self._seen_version:
            self._seen_version = version
            names = tuple(sorted(name for name in topics.names() if not is_internal(name)))
            if names != self._names or self._names_version < 0:
                self._names = names
                self._names_version = version
                self._matches.clear()
        return self._names_version

    def resolve(self, regex: str, topics: ClusterTopics) -> frozenset[str]:
        """The topics whose whole name matches, internal ones left out."""
        self.names_version(topics)
        matches = self._matches.get(regex)
        if matches is None:
            matches_whole = _compiled(regex).fullmatch
            matches = self._matches[regex] = frozenset(name for name in self._names if matches_whole(name))
        return matches


@lru_cache(_PATTERNS_MAX)
def _compiled(regex: str) -> Any:
    # Few brokers have groups with expressions, and the library takes its time to load.
    import re2

    options = re2.Options()
    options.log_errors = False
    return re2.compile(regex, options=options)
