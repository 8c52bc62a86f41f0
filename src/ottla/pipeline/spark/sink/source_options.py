"""Which options of a source decide which rows a batch of given offsets has, and in which Spark partition each is.

Those are part of a plan's fingerprint, and may not change while a batch is half written. The others may: where a batch
begins and ends stands in the checkpoint, and how the source gets at its records does not change them.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


class Options(NamedTuple):
    """In small letters, as Spark gives them. One that is in neither decides: nobody has thought about it."""

    deciding: tuple[str, ...]
    free: tuple[str, ...]
    # settings of clients, among them secrets, by how they begin
    free_prefix: str = "kafka."


# Changes become rows by these; the rest says where the database is, who asks it, and how the first batch came about,
# whose rows lie in `state`, within the checkpoint.
CAPTURED = ("tables", "topic", "server")
NOT_CAPTURED = ("host", "port", "user", "password", "retry_s", "snapshot", "state")

OPTIONS = {
    "ottla": Options(
        # how the offsets of a batch are cut, which columns there are, which records are seen
        deciding=("minpartitions", "includeheaders", "includeleaderepoch", "kafka.isolation.level"),
        free=(
            # which offsets the next batches take
            *("subscribe", "subscribepattern", "assign"),
            *("startingoffsets", "startingoffsetsbytimestamp", "startingtimestamp"),
            *("startingoffsetsbytimestampstrategy", "endingoffsets", "endingoffsetsbytimestamp"),
            *("endingtimestamp", "maxoffsetspertrigger", "minoffsetspertrigger", "maxtriggerdelay"),
            # whether a loss is an error, and for how long a broker is waited for
            *("failondataloss", "kafkaconsumer.polltimeoutms", "groupidprefix"),
            *("fetchoffset.numretries", "fetchoffset.retryintervalms", "path", "checkpointlocation"),
        ),
    ),
    "ottla-spooldir": Options(
        # It says of each entry which bytes of which files it is, and how they are split.
        deciding=("log",),
        free=(
            # which files the next entries take, and how
            *("path", "folder", "include", "ignore", "recursive", "settle_s", "format", "delimiter"),
            *("carriage_return", "key", "max_record_bytes", "max_bytes_per_batch", "split_bytes"),
            # what becomes of files that are done with, and of the records behind the source
            *("after", "done_suffix", "done_folder", "topic"),
        ),
    ),
    "ottla-mysql": Options(
        deciding=CAPTURED, free=(*NOT_CAPTURED, "server_id", "max_transactions_per_batch")
    ),
    "ottla-postgres": Options(
        # The slot and the publication decide what the server still sends, and of which tables.
        deciding=(*CAPTURED, "database", "slot", "publication"),
        free=(*NOT_CAPTURED, "max_wal_mb_per_batch"),
    ),
    # The plan of a load is frozen when it first starts.
    "ottla-archive": Options(deciding=("plan",), free=("maxoffsetspertrigger",), free_prefix="fs."),
}
# The option in which all settings of a captured database are, as JSON
CAPTURE = "capture"


def deciding(source: str, options: Mapping[str, str]) -> dict[str, Any]:
    """Those of a source of ours that decide."""
    known = OPTIONS[source]
    given: Mapping[str, Any] = json.loads(options[CAPTURE]) if CAPTURE in options else options
    return {
        name: value
        for name, value in sorted(given.items())
        if name in known.deciding or not (name in known.free or name.startswith(known.free_prefix))
    }


def source_text(source: str, options: Mapping[str, str], columns: Iterable[str]) -> str:
    """What stands for a source of ours in a fingerprint."""
    return f"{source} {json.dumps(deciding(source, options))} [{', '.join(columns)}]"
