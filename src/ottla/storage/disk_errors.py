"""Distinguishes OSErrors that mean a disk failure from those that mean a temporary lack of resources."""

import errno

# Too many open files (of the process, of the system), no memory, an interrupted call, a busy resource.
_OUT_OF_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN})

RETRY_S = 0.1  # the pause before a retry


def is_disk_failure(error: OSError) -> bool:
    """Whether the data directory goes offline. If not, the same call may succeed a moment later.

    A full disk (ENOSPC) is a failure, as in Kafka: the write is lost, and so would be the following ones.
    """
    return error.errno not in _OUT_OF_RESOURCES


def out_of_resources_message(operation: str, error: OSError) -> str:
    return (
        f"{operation} failed: {error.strerror}. This is not a disk failure: try again. If the error persists, raise "
        "the limit of open files (ulimit -n) or of memory"
    )
