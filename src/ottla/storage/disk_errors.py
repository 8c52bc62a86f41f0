"""Which errors of the system say that a disk has failed, and which only that something has run out for a while."""

import errno

# Too many open files (of the process, of the system), no memory, an interrupted call, a resource that is busy.
_RUN_OUT = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN})

RETRY_S = 0.1  # how long to wait before the same is tried again


def is_disk_failure(error: OSError) -> bool:
    """Whether the directory goes offline over it. If not, the same call may work a moment later.

    A full disk (ENOSPC) is a failure, as in Kafka: what was to be written is lost, and so would be what follows.
    """
    return error.errno not in _RUN_OUT


def run_out_message(what: str, error: OSError) -> str:
    return (
        f"{what} failed: {error.strerror}. The disk is not at fault: try again. If it lasts, raise the limit of open "
        "files (ulimit -n) or of memory"
    )
