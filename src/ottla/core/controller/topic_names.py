"""Which names a topic may have."""

import re
from collections.abc import Iterable

LENGTH_MAX = (
    249  # with "-" and a partition's number, and ".uuid-delete" on deletion, a file name of at most 255
)
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def topic_name_problem(name: str) -> str | None:
    """What is wrong with a topic's name, or None."""
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
    """The topic whose metrics would have the same names: those write a period as an underscore."""
    if "." not in name and "_" not in name:
        return None
    metric = name.replace(".", "_")
    for other in existing:
        if len(other) == len(name) and other != name and other.replace(".", "_") == metric:
            return other
    return None
