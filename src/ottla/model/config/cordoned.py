"""`cordoned.log.dirs` (KIP-1066): the data directories that get no new replicas."""

from collections.abc import Sequence

CORDONED_LOG_DIRS = "cordoned.log.dirs"
ALL = "*"


def cordoned_paths(value: Sequence[str], log_dirs: Sequence[str]) -> frozenset[str]:
    """The paths of a value of the config. Raises ValueError if it names another directory than those of `log_dirs`."""
    if ALL in value and len(value) > 1:
        raise ValueError(
            f"{CORDONED_LOG_DIRS}: {ALL} stands for all directories, so it must be the only entry"
        )
    paths, unknown = split_cordoned_paths(value, log_dirs)
    if unknown:
        raise ValueError(
            f"{CORDONED_LOG_DIRS}: {unknown[0]} is not one of log.dirs ({', '.join(sorted(_normalized(log_dirs)))}). "
            f"Set some of these, or {ALL} for all"
        )
    return paths


def split_cordoned_paths(value: Sequence[str], log_dirs: Sequence[str]) -> tuple[frozenset[str], list[str]]:
    """The paths of a value of the config, and its entries that are not in `log_dirs`."""
    known, entries = _normalized(log_dirs), _normalized(value)
    return known if ALL in entries else entries & known, sorted(entries - known - {ALL})


def _normalized(paths: Sequence[str]) -> frozenset[str]:
    return frozenset(path.rstrip("/") or "/" for path in paths)
