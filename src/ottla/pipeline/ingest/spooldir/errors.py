"""The sentences for what can be wrong with a file of the spool directory."""

from ottla.pipeline.errors import PipelineError


def shown(path: str) -> str:
    """A path as it can be printed: names are bytes, which may hold anything."""
    return path if path.isprintable() else ascii(path)


def changed(path: str, how: str) -> PipelineError:
    return PipelineError(
        f"The file {shown(path)} changed after it was taken: {how}.",
        "Put it back as it was and start again. Files must be complete when they appear: write them under a name that"
        " `ignore` matches, then rename them; give new data a new name.",
    )


def gone(path: str, size: int) -> PipelineError:
    return PipelineError(
        f"The file {shown(path)} ({size} bytes) was taken, and is gone before its records were committed.",
        "Put it back as it was and start again: nothing of it is lost or written twice.",
    )


def unreadable(path: str, error: OSError) -> PipelineError:
    return PipelineError(
        f"The file {shown(path)} cannot be read: {error.strerror}.",
        "Allow this user to read it, or let `ignore` match its name, and start again.",
    )


def folder_unreadable(path: str, error: OSError) -> PipelineError:
    return PipelineError(
        f"The folder {shown(path)} cannot be listed: {error.strerror}.",
        "Make or mount it, or allow this user to read it, and start again: nothing is lost.",
    )


def record_too_long(path: str, line: int, position: int, record_bytes_max: int) -> PipelineError:
    return PipelineError(
        f"Record {line} of the file {shown(path)}, at byte {position}, is longer than {record_bytes_max} bytes.",
        "Raise `max_record_bytes` and the topic's max.message.bytes, and start again.",
    )


def cannot_put_away(path: str, target: str, error: OSError) -> PipelineError:
    return PipelineError(
        f"The records of the file {shown(path)} are committed, but it cannot be {target}: {error.strerror}.",
        "Mend that and start again: it is put away then, and its records are not written twice.",
    )


def log_unwritable(path: str, error: OSError) -> PipelineError:
    return PipelineError(
        f"The log of taken files in {shown(path)} cannot be written: {error.strerror}.",
        "Mend that (is the disk full?) and start again: nothing is lost.",
    )


def log_unreadable(path: str, line: int) -> PipelineError:
    return PipelineError(
        f"The log of taken files in {shown(path)} cannot be understood at line {line}.",
        "Restore it, or remove the checkpoint with it: files that are not yet put away are then taken again.",
    )


def log_too_short(path: str, asked: int, end: int) -> PipelineError:
    return PipelineError(
        f"The query's checkpoint is at entry {asked}, but the log of taken files in {shown(path)} ends at entry {end}.",
        "Restore the log, or remove the checkpoint with it: files that are not yet put away are then taken again.",
    )


def log_too_far(path: str, asked: int, finished: int) -> PipelineError:
    return PipelineError(
        f"The query asks for entry {asked} of the log of taken files in {shown(path)}, but the files of all entries"
        f" below {finished} are committed and put away.",
        "The checkpoint is older than the log: restore the newer one, or remove both and put back the files that shall"
        " be read again.",
    )


def in_use(path: str) -> PipelineError:
    return PipelineError(
        f"Another query is at work with the log of taken files in {shown(path)}.",
        "Stop it first, or give this source a name or `log` of its own.",
    )
