"""Creates directories that survive a power loss."""

from ottla.env.disk import Disk


def create_directory(disk: Disk, path: str) -> None:
    """Creates `path`, and its parents, if they do not exist. As in Kafka, the name of each is synced: otherwise a power
    loss could remove a data directory with everything that was synced in it.
    """
    missing = []
    here = path
    while here and not disk.exists(here):
        missing.append(here)
        here = here.rpartition("/")[0]
    disk.make_dirs(path)
    for created in missing:
        parent, slash, _ = created.rpartition("/")
        disk.sync_dir(parent or slash or ".")
