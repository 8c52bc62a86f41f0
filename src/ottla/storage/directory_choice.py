"""Which data directory gets a new replica."""

from collections.abc import Collection, Iterable

from ottla.storage.log_dir import LogDir


def by_preference(log_dirs: Iterable[LogDir], cordoned: Collection[str]) -> list[LogDir]:
    """The directory with the fewest partitions first; cordoned ones only after all others (KIP-1066)."""
    return sorted(log_dirs, key=lambda each: (each.path in cordoned, len(each.partitions)))
