"""The rules for topic names."""

import re
from collections.abc import Iterable

# Leaves room in a file name of 255 bytes for the partition number and the suffix of a deleted partition.
LENGTH_MAX = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def topic_name_error(name: str) -> str | None:
    """The error message for an invalid topic name, or None."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in (".", ".."):
        return f"Topic name is invalid: '{name}' is not allowed"
    if len(name) > LENGTH_MAX:
        return f"Topic name is invalid: the length of '{name}' is longer than the max allowed length {LENGTH_MAX}"
    if not _LEGAL.fullmatch(name):
        return (
            f"Topic name is invalid: '{name}' contains one or more characters other than ASCII alphanumerics, "
            "'.', '_' and '-'"
        )
    return None


class MetricNames:
    """The topics by the names of their metrics, which have an underscore for each period.

    The existing topics are walked through once, and only if a name is asked for that can collide.
    """

    def __init__(self, existing: Iterable[str]) -> None:
        self._existing = existing
        self._topics: dict[str, str] | None = None

    def colliding_topic(self, name: str) -> str | None:
        """Another topic whose metrics would have the same names."""
        if not _can_collide(name):
            return None
        if self._topics is None:
            self._topics = {}
            for existing in self._existing:
                _add(self._topics, existing)
        other = self._topics.get(_metric_name(name))
        return None if other == name else other

    def add(self, name: str) -> None:
        """A topic is created. Its name has been asked for."""
        if self._topics is not None:
            _add(self._topics, name)


def _add(topics: dict[str, str], name: str) -> None:
    if _can_collide(name):
        topics.setdefault(_metric_name(name), name)


def _can_collide(name: str) -> bool:
    return "." in name or "_" in name


def _metric_name(name: str) -> str:
    return name.replace(".", "_")
