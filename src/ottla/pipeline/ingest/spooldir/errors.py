"""The errors of a spool directory: its files, its folder, and its log."""

from ottla.pipeline.errors import PipelineError


def _printable(path: str) -> str:
    """Names of files are bytes, which may not be printable."""
    return path if path.isprintable() else ascii(path)


def file_changed(path: str, how: str) -> PipelineError:
    return PipelineError(
        f"The file {_printable(path)} changed after it was taken: {how}.",
        "Put it back as it was and start again. Files must be complete when they appear: write them under a name that"
        " `ignore` matches, then rename them; give new data a new name.",
    )


def file_missing(path: str, size: int) -> PipelineError:
    return PipelineError(
        f"The file {_printable(path)} ({size} bytes) was taken, but disappeared before its records were committed.",
        "Put it back as it was and start again: nothing of it is lost or written twice.",
    )


def file_unreadable(path: str, error: OSError) -> PipelineError:
    return PipelineError(
        f"The file {_printable(path)} cannot be read: {error.strerror}.",
        "Allow this user to read it, or let `ignore` match its name, and start again.",
    )


def folder_unreadable(path: str, error: OSError) -> PipelineError:
    return PipelineError(
        f"The folder {_printable(path)} cannot be listed: {error.strerror}.",
        "Create or mount it, or allow this user to read it, and start again: nothing is lost.",
    )


def record_too_long(path: str, line: int, position: int, record_bytes_max: int) -> PipelineError:
    return PipelineError(
        f"Record {line} of the file {_printable(path)}, at byte {position}, is longer than {record_bytes_max} bytes.",
        "Raise `max_record_bytes` and the topic's max.message.bytes, and start again.",
    )


def cannot_finish(path: str, action: str, error: OSError) -> PipelineError:
    return PipelineError(
        f"The records of the file {_printable(path)} are committed, but it cannot be {action}: {error.strerror}.",
        "Fix that and start again: the file is finished then, and its records are not written twice.",
    )


def log_unwritable(path: str, error: OSError) -> PipelineError:
    return PipelineError(
        f"The log of taken files in {_printable(path)} cannot be written: {error.strerror}.",
        "Fix that (is the disk full?) and start again: nothing is lost.",
    )


def log_damaged(path: str, line: int) -> PipelineError:
    return PipelineError(
        f"The log of taken files in {_printable(path)} is damaged at line {line}.",
        "Restore it, or remove it and the checkpoint: files that are not finished are then read again.",
    )


def log_behind_checkpoint(path: str, entry: int, end: int) -> PipelineError:
    return PipelineError(
        f"The query's checkpoint is at entry {entry}, but the log of taken files in {_printable(path)} ends at entry"
        f" {end}.",
        "Restore the log, or remove it and the checkpoint: files that are not finished are then read again.",
    )


def log_ahead_of_checkpoint(path: str, entry: int, finished: int) -> PipelineError:
    return PipelineError(
        f"The query asks for entry {entry} of the log of taken files in {_printable(path)}, but the files of all"
        f" entries below {finished} are committed and finished.",
        "The checkpoint is older than the log. Restore the newer checkpoint; or remove both, and put back the files to"
        " read again.",
    )


def log_in_use(path: str) -> PipelineError:
    return PipelineError(
        f"Another query uses the log of taken files in {_printable(path)}.",
        "Stop it first, or give this source a name or `log` of its own.",
    )
