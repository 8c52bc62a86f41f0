"""The options of a reader of `format("ottla")`, with the names, defaults and meanings of Spark's Kafka source."""

import difflib
import re
import warnings
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from ottla.model.ids import TopicPartition
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.spark.clients import PREFIX, kafka_properties
from ottla.pipeline.spark.offsets import EARLIEST, LATEST, Offsets, parse_assignment, parse_offsets
from ottla.pipeline.spark.rows import Extras

_SELECTIONS = ("subscribe", "subscribePattern", "assign")
_OFFSETS = (
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
)
_OTHERS = (
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "includeHeaders",
    "includeLeaderEpoch",
    "failOnDataLoss",
    "kafkaConsumer.pollTimeoutMs",
)
KNOWN = (*_SELECTIONS, *_OFFSETS, *_OTHERS)
# further options of Spark's Kafka source, and those that Spark adds; ignored without a warning
IGNORED = (
    "path",
    "checkpointlocation",
    "groupidprefix",
    "fetchoffset.numretries",
    "fetchoffset.retryintervalms",
)
# set by the source, as in Spark's
_RESERVED = (
    "auto.offset.reset",
    "enable.auto.commit",
    "key.deserializer",
    "value.deserializer",
    "interceptor.classes",
)

# Java's default, which differs from librdkafka's
_CLIENT = {"isolation.level": "read_uncommitted"}

_DELAY = re.compile(r"\s*(\d+)\s*(ms|s|m|min|h|d)\s*")
_DELAY_UNITS_S = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True)
class Point:
    """Where to start or to end: at an end of the log, or at an offset or a time of each partition."""

    kind: Literal["end", "offsets", "time"]
    # for all partitions (a time, EARLIEST or LATEST), or for each
    everywhere: int | None = None
    each: Offsets = field(default_factory=dict)


@dataclass(frozen=True)
class ReadOptions:
    client: dict[str, str]
    subscribe: tuple[str, ...]
    pattern: str | None
    assign: frozenset[TopicPartition]
    start: Point
    end: Point
    # whether a start time after the last record means the latest offset; it is an error otherwise
    late_start_is_latest: bool
    rows_max: int | None
    rows_min: int | None
    delay_max_s: float
    partitions_min: int
    # how many offsets a Spark partition has at most; None without limit
    partition_rows_max: int | None
    extras: Extras
    fail_on_data_loss: bool
    poll_timeout_s: float

    @property
    def read_committed(self) -> bool:
        return self.client["isolation.level"] == "read_committed"

    @property
    def is_plaintext(self) -> bool:
        return self.client.get("security.protocol", "plaintext").lower() == "plaintext"


def read_options(options: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    given = {name.lower(): value for name, value in options.items()}
    for name in _RESERVED:
        if PREFIX + name in given:
            raise PipelineError(f"The option `kafka.{name}` is set by the source.", "Leave it out.")
    subscribe, pattern, assign = _selection(given)
    start, end = _starting_point(given, streaming), _ending_point(given, streaming)
    strategy = one_of(given, "startingOffsetsByTimestampStrategy", ("error", "latest"))
    return ReadOptions(
        client={**_CLIENT, **kafka_properties(given)},
        subscribe=subscribe,
        pattern=pattern,
        assign=assign,
        start=start,
        end=end,
        late_start_is_latest=strategy == "latest",
        rows_max=_whole_number(given, "maxOffsetsPerTrigger"),
        rows_min=_whole_number(given, "minOffsetsPerTrigger"),
        delay_max_s=_delay_s(given, "maxTriggerDelay", "15m"),
        partitions_min=_whole_number(given, "minPartitions") or 1,
        partition_rows_max=_whole_number(given, "maxRecordsPerPartition"),
        extras=extras_of(given),
        fail_on_data_loss=one_of(given, "failOnDataLoss", ("true", "false")) == "true",
        poll_timeout_s=(_whole_number(given, "kafkaConsumer.pollTimeoutMs") or 120_000) / 1000,
    )


def extras_of(given: Mapping[str, str]) -> Extras:
    names = ("includeHeaders", "includeLeaderEpoch")
    return Extras(*(one_of(given, name, ("false", "true")) == "true" for name in names))


def warn_of_unknown(
    given: Mapping[str, str], known: Iterable[str], ignored: Container[str], subject: str = 'format("ottla")'
) -> None:
    """`subject` names the source or sink in the warning."""
    names = {name.lower(): name for name in known}
    for name in map(str.lower, given):
        if name in names or name in ignored or name.startswith(PREFIX):
            continue
        close = difflib.get_close_matches(name, names, n=1)
        hint = f" Did you mean `{names[close[0]]}`?" if close else ""
        warnings.warn(f"{subject} has no option `{name}`: it is ignored.{hint}", stacklevel=3)


def _selection(given: Mapping[str, str]) -> tuple[tuple[str, ...], str | None, frozenset[TopicPartition]]:
    chosen = [name for name in _SELECTIONS if name.lower() in given]
    if len(chosen) != 1:
        found = " and ".join(f"`{name}`" for name in chosen) or "none"
        raise PipelineError(
            f"One of the options {', '.join(_SELECTIONS)} selects the topics; given is {found}.",
            "Give exactly one.",
        )
    value = given[chosen[0].lower()]
    if chosen == ["subscribe"]:
        topics = tuple(topic.strip() for topic in value.split(",") if topic.strip())
        if not topics:
            raise PipelineError(
                f"The option `subscribe` is {value!r}.", "Name one or more topics, separated by commas."
            )
        return topics, None, frozenset()
    if chosen == ["assign"]:
        return (), None, frozenset(parse_assignment(value))
    try:
        re.compile(value)
    except re.error as error:
        raise PipelineError(
            f"The option `subscribePattern` is {value!r}, which is not a regular expression: {error}.",
            "Fix it.",
        ) from error
    return (), value, frozenset()


def _starting_point(given: Mapping[str, str], streaming: bool) -> Point:
    point = _point_of(given, "starting", default="latest" if streaming else "earliest")
    if not streaming and LATEST in (point.everywhere, *point.each.values()) and point.kind != "time":
        raise PipelineError(
            "A batch cannot start at `latest`: it would be empty.", "Give another startingOffsets."
        )
    return point


def _ending_point(given: Mapping[str, str], streaming: bool) -> Point:
    if streaming:
        for name in _OFFSETS:
            if name.startswith("ending") and name.lower() in given:
                raise PipelineError(
                    f"The option `{name}` is for batches; a stream has no end.", "Leave it out."
                )
    point = _point_of(given, "ending", default="latest")
    if EARLIEST in (point.everywhere, *point.each.values()) and point.kind != "time":
        raise PipelineError(
            "A batch cannot end at `earliest`: it would be empty.", "Give another endingOffsets."
        )
    return point


def _point_of(given: Mapping[str, str], which: str, default: str) -> Point:
    """If several options are given, the first counts, as in Spark: one time, times of partitions, offsets."""
    time_ms = _whole_number(given, f"{which}Timestamp")
    if time_ms is not None:
        return Point("time", everywhere=time_ms)
    name = f"{which}OffsetsByTimestamp"
    if name.lower() in given:
        return Point("time", each=parse_offsets(name, given[name.lower()]))
    name = f"{which}Offsets"
    text = given.get(name.lower(), default).strip()
    ends = {"earliest": EARLIEST, "latest": LATEST}
    if text.lower() in ends:
        return Point("end", everywhere=ends[text.lower()])
    if not text.startswith("{"):
        raise PipelineError(
            f"The option `{name}` is {text!r}.", 'Give earliest, latest, or JSON as in {"topic": {"0": 23}}.'
        )
    return Point("offsets", each=parse_offsets(name, text))


def _whole_number(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return None
    if not re.fullmatch(r"\s*\d+\s*", text) or int(text) <= 0:
        raise PipelineError(f"The option `{name}` is {text!r}.", "Give a whole number above 0.")
    return int(text)


def one_of(given: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    """The first of the choices is the default."""
    value = given.get(name.lower(), choices[0]).strip().lower()
    if value not in choices:
        raise PipelineError(f"The option `{name}` is {value!r}.", f"Choose one of: {', '.join(choices)}.")
    return value


def _delay_s(given: Mapping[str, str], name: str, default: str) -> float:
    text = given.get(name.lower(), default)
    found = _DELAY.fullmatch(text.lower())
    if found is None:
        raise PipelineError(f"The option `{name}` is {text!r}.", "Give a time such as 500ms, 30s or 15m.")
    return int(found[1]) * _DELAY_UNITS_S[found[2]]
