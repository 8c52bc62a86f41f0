"""The options of a source that decide which rows a batch of given offsets has, and in which Spark partition each is.

These are part of a plan's fingerprint, and must not change while a batch is half written. The others may change: the
checkpoint says where a batch starts and ends, and how the source reads its records does not change them.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


class Options(NamedTuple):
    """In lower case, as Spark passes them. An option in neither list counts as deciding, to be safe."""

    deciding: tuple[str, ...]
    free: tuple[str, ...]
    # the prefix of settings of clients, which include secrets
    free_prefix: str | tuple[str, ...] = "kafka."


# These decide how changes become rows. The others say where the database is, which user reads it, and how the
# snapshot is made, whose rows are in `state`, within the checkpoint.
_CAPTURED = ("tables", "topic", "server")
_NOT_CAPTURED = ("host", "port", "user", "password", "retry_s", "snapshot", "state")

_TOPICS = Options(
    # how the offsets of a batch are divided, which columns there are, which records are visible
    deciding=(
        *("minpartitions", "maxrecordsperpartition", "includeheaders", "includeleaderepoch"),
        "kafka.isolation.level",
    ),
    free=(
        # which offsets the next batches take
        *("subscribe", "subscribepattern", "assign"),
        *("startingoffsets", "startingoffsetsbytimestamp", "startingtimestamp"),
        *("startingoffsetsbytimestampstrategy", "endingoffsets", "endingoffsetsbytimestamp"),
        *("endingtimestamp", "maxoffsetspertrigger", "minoffsetspertrigger", "maxtriggerdelay"),
        # whether data loss is an error, and how long to wait for a broker
        *("failondataloss", "kafkaconsumer.polltimeoutms", "groupidprefix"),
        *("fetchoffset.numretries", "fetchoffset.retryintervalms", "path", "checkpointlocation"),
    ),
)

OPTIONS = {
    "ottla": _TOPICS,
    "ottla-spooldir": Options(
        # It says which bytes of which files each entry is, and how they are split.
        deciding=("log",),
        free=(
            # which files the next entries take, and how
            *("path", "folder", "include", "ignore", "recursive", "settle_s", "format", "delimiter"),
            *("carriage_return", "key", "max_record_bytes", "max_bytes_per_batch", "split_bytes"),
            # what happens to finished files, and to the records after the source
            *("after", "done_suffix", "done_folder", "topic"),
        ),
    ),
    "ottla-mysql": Options(
        deciding=_CAPTURED, free=(*_NOT_CAPTURED, "server_id", "max_transactions_per_batch")
    ),
    "ottla-postgres": Options(
        # The slot and the publication decide which changes the server still sends, and of which tables.
        deciding=(*_CAPTURED, "database", "slot", "publication"),
        free=(*_NOT_CAPTURED, "max_wal_mb_per_batch"),
    ),
    # The plan of a reload does not change after its first start.
    "ottla-archive": Options(deciding=("plan",), free=("maxoffsetspertrigger",), free_prefix="fs."),
    # Nor does that of a replay, which reads topics too.
    "ottla-replay": Options(("plan", *_TOPICS.deciding), _TOPICS.free, free_prefix=("kafka.", "fs.")),
}
# the option that holds all settings of a captured database as JSON
_CAPTURE = "capture"


def deciding(source: str, options: Mapping[str, str]) -> dict[str, Any]:
    """The options of one of our sources that decide about rows."""
    known = OPTIONS[source]
    given: Mapping[str, Any] = json.loads(options[_CAPTURE]) if _CAPTURE in options else options
    return {
        name: value
        for name, value in sorted(given.items())
        if name in known.deciding or not (name in known.free or name.startswith(known.free_prefix))
    }


def source_text(source: str, options: Mapping[str, str], columns: Iterable[str]) -> str:
    """The text of one of our sources in a fingerprint."""
    return f"{source} {json.dumps(deciding(source, options))} [{', '.join(columns)}]"
