"""The options of a writer of `format("ottla")`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.spark.clients import PREFIX, kafka_properties
from ottla.pipeline.spark.options import one_of, warn_of_unknown

_EXACTLY_ONCE = ("sinkId", "planFingerprint", "resetSink", "acceptPlan", "batchId", "writtenBytes")
_KNOWN = ("topic", "keepTimestamps", *_EXACTLY_ONCE)
# further options of Spark and its Kafka sink; ignored without a warning
_IGNORED = ("path", "checkpointlocation", "queryname", "includeheaders")
# set by the sink, whose guarantees need them
_RESERVED = ("transactional.id", "enable.idempotence", "key.serializer", "value.serializer")

# used in the name of a topic and in transactional ids
_SINK_ID = re.compile(r"[A-Za-z0-9._-]{1,200}")

# If a process dies in its transaction and nothing restarts the query, readers with read_committed wait so long for the
# end of the transaction.
TRANSACTION_TIMEOUT_MS = 120_000


@dataclass(frozen=True)
class SinkOptions:
    """`plan` is the plan's fingerprint; `reset` is the query, `accept_plan` the plan that this one may replace.

    `written_bytes` is the path of the file in which the driver counts what is written.
    """

    client: dict[str, str]
    topic: str | None = None
    keep_timestamps: bool = False
    sink_id: str | None = None
    plan: str = ""
    reset: str | None = None
    accept_plan: str | None = None
    batch_id: int | None = None
    written_bytes: str | None = None

    @property
    def transaction_timeout_s(self) -> float:
        return int(self.client.get("transaction.timeout.ms", TRANSACTION_TIMEOUT_MS)) / 1000


def sink_options(options: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    given = {name.lower(): value for name, value in options.items()}
    warn_of_unknown(given, _KNOWN, _IGNORED, 'The sink of format("ottla")')
    for name in _RESERVED:
        if PREFIX + name in given:
            raise PipelineError(f"The option `kafka.{name}` is set by the sink.", "Leave it out.")
    sink_id = given.get("sinkid")
    if sink_id is None:
        _reject_without_sink_id(given)
    elif streaming:
        _check_stream(given, sink_id)
    return SinkOptions(
        client=kafka_properties(given),
        topic=given.get("topic"),
        keep_timestamps=one_of(given, "keepTimestamps", ("false", "true")) == "true",
        sink_id=None if sink_id is None else check_sink_id(sink_id),
        plan=given.get("planfingerprint", ""),
        reset=given.get("resetsink"),
        accept_plan=given.get("acceptplan"),
        batch_id=None if sink_id is None or streaming else _batch_id(given),
        written_bytes=given.get("writtenbytes"),
    )


def _reject_without_sink_id(given: Mapping[str, str]) -> None:
    for name in _EXACTLY_ONCE:
        if name.lower() in given:
            raise PipelineError(
                f"The option `{name}` is for writing exactly once, and `sinkId` is not given.",
                "Set `sinkId`, a name for this sink that stays the same; or leave the option out.",
            )


def _check_stream(given: Mapping[str, str], sink_id: str) -> None:
    if "planfingerprint" not in given:
        raise PipelineError(
            f"The stream to sink `{sink_id}` was not checked for writing exactly once.",
            "Start it with ottla.pipeline.spark.exactly_once(df, sink_id), which checks the plan.",
        )
    if "batchid" in given:
        raise PipelineError(
            "The option `batchId` is for batch writes; a stream counts its batches itself.", "Leave it out."
        )


def check_sink_id(sink_id: str) -> str:
    if _SINK_ID.fullmatch(sink_id) is None:
        raise PipelineError(
            f"The sink id is {sink_id!r}.", "Use 1 to 200 of the characters a-z, A-Z, 0-9, `.`, `_` and `-`."
        )
    return sink_id


def _batch_id(given: Mapping[str, str]) -> int:
    text = given.get("batchid", "")
    if re.fullmatch(r"\d{1,18}", text) is None:
        raise PipelineError(
            f"The option `batchId` is {text!r}." if text else "The option `batchId` is missing.",
            "Set a whole number that is the same when this write runs again, and higher for the next write.",
        )
    return int(text)
