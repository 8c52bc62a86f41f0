"""`cordoned.log.dirs` (KIP-1066): the data directories that get no new replicas."""

from collections.abc import Sequence

CORDONED_LOG_DIRS = "cordoned.log.dirs"
ALL = "*"


def cordoned_paths(value: Sequence[str], log_dirs: Sequence[str]) -> frozenset[str]:
    """The paths of a value of the config. Raises ValueError if it names another directory than those of `log_dirs`."""
    known = {path.rstrip("/") or "/" for path in log_dirs}
    if ALL in value:
        if len(value) > 1:
            raise ValueError(
                f"{CORDONED_LOG_DIRS}: {ALL} stands for all directories, so it must be the only entry"
            )
        return frozenset(known)
    paths = frozenset(path.rstrip("/") or "/" for path in value)
    if unknown := sorted(paths - known):
        raise ValueError(
            f"{CORDONED_LOG_DIRS}: {unknown[0]} is not one of log.dirs ({', '.join(sorted(known))}). Set some of "
            f"these, or {ALL} for all"
        )
    return paths
