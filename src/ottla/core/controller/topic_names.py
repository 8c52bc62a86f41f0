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


def colliding_name(name: str, existing: Iterable[str]) -> str | None:
    """An existing topic whose metrics would have the same names, because they replace a period by an underscore."""
    if "." not in name and "_" not in name:
        return None
    metric = name.replace(".", "_")
    for other in existing:
        if len(other) == len(name) and other != name and other.replace(".", "_") == metric:
            return other
    return None
