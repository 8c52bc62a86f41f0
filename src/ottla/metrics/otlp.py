"""Reads the metrics that Kafka's clients push (KIP-714): MetricsData of OpenTelemetry, in protobuf.

Only the messages and fields that are exposed are read; the others are skipped, as protobuf allows. A reader of our own
is smaller than a dependency on protobuf with generated classes.

A push of a few hundred bytes may decompress to a megabyte. So what is read of one push is limited: the samples, the
fields, and the lengths of names and labels. Kafka's own clients stay far below, but for a consumer of hundreds of
partitions whose metrics are all subscribed to.
"""

from collections.abc import Iterator
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

# A client exposes no more than `client_series.SERIES_PER_CLIENT_MAX` of them.
SAMPLES_MAX = 1000
# The time to read a push grows with its fields: this many take about 0.1 s. A sample of Kafka's clients has 20 to 50.
FIELDS_MAX = 100_000
# Kafka's longest names have about 100 bytes, and a topic, which is the longest label, 249. A client has up to 5 labels
# for a sample. A longer text would be repeated in each series.
NAME_BYTES_MAX = 255
LABELS_MAX = 16
LABEL_BYTES_MAX = 255

# Kafka's clients have one. Each gets the labels of the client when the push is forwarded.
RESOURCES_MAX = 4

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DOUBLE, _SIGNED = Struct("<d"), Struct("<q")
_DELTA = 1


class OtlpError(ValueError):
    """The bytes are not MetricsData."""


class _LimitReached(Exception):
    """The rest of the push is not read."""


class _LabelLimit(Exception):
    """The sample is not read."""


class PushedSample(NamedTuple):
    """`is_delta`: the value is the increase since the push before."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float
    is_counter: bool
    is_delta: bool


class PushedMetrics(NamedTuple):
    """`limits` are those that the push has exceeded. `dropped` counts its samples that are missing for that reason; the
    part of a push that is not read counts as one.
    """

    samples: list[PushedSample]
    dropped: int
    limits: frozenset[str]


def read_metrics(data: bytes) -> PushedMetrics:
    """Raises OtlpError."""
    reader = _MetricsReader()
    try:
        reader.read(data)
    except _LimitReached as limit:
        reader.drop(str(limit))
    except (IndexError, UnicodeDecodeError, StructError) as error:
        raise OtlpError(f"the metrics are malformed: {error}") from error
    return PushedMetrics(reader.samples, reader.dropped, frozenset(reader.limits))


def with_resource_attributes(data: bytes, attributes: dict[str, str]) -> bytes:
    """The same metrics, of resources that have these attributes too. Raises OtlpError.

    Kafka's Java client repeats its resource with every metric. Metrics of the same resource are put together, so that
    the attributes are there once and the result is longer than `data` by a constant only.
    """
    own = b"".join(
        _field(1, _field(1, name.encode()) + _field(2, _field(1, value.encode())))
        for name, value in attributes.items()
    )
    reader = _FieldReader()
    scopes: dict[tuple[bytes, bytes], list[bytes]] = {}  # by the resource and the URL of their schema
    try:
        for message in reader.messages(data, 1):
            parts: dict[int, list[bytes]] = {1: [], 2: [], 3: [b""]}
            for number, value in reader.fields(message):
                if number in parts and isinstance(value, bytes):
                    parts[number].append(value)
            # What occurs twice is merged, and of a text the last one is valid, as by every reader of protobuf.
            key = (b"".join(parts[1]), parts[3][-1])
            scopes.setdefault(key, []).extend(_field(2, scope) for scope in parts[2])
            if len(scopes) > RESOURCES_MAX:
                raise OtlpError(f"more than {RESOURCES_MAX} resources in a push")
    except (_LimitReached, IndexError) as error:
        raise OtlpError(str(error)) from None
    return b"".join(
        _field(1, b"".join([_field(1, resource + own), *found, _field(3, schema) if schema else b""]))
        for (resource, schema), found in scopes.items()
    )


class _FieldReader:
    """Counts the fields that it reads."""

    def __init__(self) -> None:
        self._fields_left = FIELDS_MAX

    def messages(self, data: bytes, wanted: int) -> Iterator[bytes]:
        for number, value in self.fields(data):
            if number == wanted and isinstance(value, bytes):
                yield value

    def fields(self, data: bytes) -> Iterator[tuple[int, int | bytes | memoryview]]:
        """Number and value of each field: an int for a varint, bytes for a text or a message, a view for a number of 8
        or 4 bytes.
        """
        position = 0
        while position < len(data):
            if not self._fields_left:
                raise _LimitReached(f"more than {FIELDS_MAX} fields in a push")
            self._fields_left -= 1
            tag, position = _varint(data, position)
            number, wire_type = tag >> 3, tag & 7
            if wire_type == _VARINT:
                value, position = _varint(data, position)
                yield number, value
                continue
            if wire_type == _BYTES:
                size, position = _varint(data, position)
            elif wire_type in (_FIXED64, _FIXED32):
                size = 8 if wire_type == _FIXED64 else 4
            else:
                raise OtlpError(f"field {number} has the wire type {wire_type}")
            end = position + size
            if end > len(data):
                raise OtlpError(f"field {number} ends after the message")
            yield number, data[position:end] if wire_type == _BYTES else memoryview(data)[position:end]
            position = end


class _MetricsReader(_FieldReader):
    def __init__(self) -> None:
        super().__init__()
        self.samples: list[PushedSample] = []
        self.dropped = 0
        self.limits: set[str] = set()

    def drop(self, limit: str) -> None:
        self.dropped += 1
        self.limits.add(limit)

    def read(self, data: bytes) -> None:
        for of_resource in self.messages(data, 1):
            for of_scope in self.messages(of_resource, 2):
                for metric in self.messages(of_scope, 2):
                    self._read_metric(metric)

    def _read_metric(self, metric: bytes) -> None:
        name = b""
        for number, value in self.fields(metric):
            if not isinstance(value, bytes):
                continue
            if number == 1:
                name = value
            elif number in (5, 7):  # a gauge or a sum; histograms are not sent by Kafka's clients
                self._read_points(name, value, is_sum=number == 7)

    def _read_points(self, name: bytes, data: bytes, *, is_sum: bool) -> None:
        limit = "" if len(name) <= NAME_BYTES_MAX else f"more than {NAME_BYTES_MAX} bytes in a name"
        text = "" if limit else name.decode()
        options = {key: item for key, item in self.fields(data) if isinstance(item, int)}
        is_counter = is_sum and bool(options.get(3))
        is_delta = is_sum and options.get(2) == _DELTA
        for point in self.messages(data, 1):
            if len(self.samples) + self.dropped >= SAMPLES_MAX:
                raise _LimitReached(f"more than {SAMPLES_MAX} samples in a push")
            try:
                labels, found = self._read_point(point)
            except _LabelLimit as exceeded:
                self.drop(limit or str(exceeded))
                continue
            if limit:
                self.drop(limit)
            elif found is not None:
                self.samples.append(PushedSample(text, labels, found, is_counter, is_delta))

    def _read_point(self, point: bytes) -> tuple[tuple[tuple[str, str], ...], float | None]:
        labels: list[tuple[str, str]] = []
        found: float | None = None
        for number, value in self.fields(point):
            if number == 4 and not isinstance(value, int):
                found = _DOUBLE.unpack(value)[0]
            elif number == 6 and not isinstance(value, int):
                found = _SIGNED.unpack(value)[0]
            elif number == 7 and isinstance(value, bytes):
                if len(labels) == LABELS_MAX:
                    raise _LabelLimit(f"more than {LABELS_MAX} labels of a sample")
                labels.append(self._read_attribute(value))
        return tuple(labels), found

    def _read_attribute(self, pair: bytes) -> tuple[str, str]:
        key, text = "", ""
        for number, value in self.fields(pair):
            if number == 1 and isinstance(value, bytes):
                key = _label_text(value)
            elif number == 2 and isinstance(value, bytes):
                for kind, item in self.fields(value):
                    if kind == 1 and isinstance(item, bytes):
                        text = _label_text(item)
                    elif kind == 4 and not isinstance(item, int):
                        text = str(_DOUBLE.unpack(item)[0])
                    elif isinstance(item, int):
                        text = str(item)
        return key, text


def _label_text(data: bytes) -> str:
    if len(data) > LABEL_BYTES_MAX:
        raise _LabelLimit(f"more than {LABEL_BYTES_MAX} bytes in the name or value of a label")
    return data.decode()


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 63:
            raise OtlpError("a number has more than 64 bits")


def _field(number: int, data: bytes) -> bytes:
    return _encode_varint(number << 3 | _BYTES) + _encode_varint(len(data)) + data


def _encode_varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
