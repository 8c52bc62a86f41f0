"""Records as JSON lines: what `ottla consume --json` writes, `ottla produce --json` reads."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from ottla.admin.json_records import OutgoingRecord, record_from_json, record_to_json


class Message:
    """The part of confluent-kafka's Message that is used."""

    def __init__(self, record: OutgoingRecord, kind: int = 1) -> None:
        self.record, self.kind = record, kind

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return self.record.partition or 0

    def offset(self) -> int:
        return 7

    def timestamp(self) -> tuple[int, int]:
        return self.kind, self.record.timestamp or 0

    def key(self) -> bytes | None:
        return self.record.key

    def value(self) -> bytes | None:
        return self.record.value

    def headers(self) -> Any:
        return self.record.headers or None


@pytest.mark.parametrize(
    ("line", "record"),
    [
        ('{"value": "b"}', OutgoingRecord(None, b"b", [], None, None)),
        ('{"key": "ü", "value": null}', OutgoingRecord("ü".encode(), None, [], None, None)),
        ('{"value": {"id": 1}}', OutgoingRecord(None, b'{"id": 1}', [], None, None)),
        ('{"key_base64": "/w==", "value_base64": ""}', OutgoingRecord(b"\xff", b"", [], None, None)),
        (
            '{"headers": {"a": "b", "n": null}}',
            OutgoingRecord(None, None, [("a", b"b"), ("n", None)], None, None),
        ),
        (
            '{"headers": [{"name": "a", "value": "1"}, {"name": "a", "value_base64": "/w=="}]}',
            OutgoingRecord(None, None, [("a", b"1"), ("a", b"\xff")], None, None),
        ),
        (
            '{"topic": "t", "offset": 5, "partition": 2, "timestamp": 17}',
            OutgoingRecord(None, None, [], 2, 17),
        ),
    ],
)
def test_a_line_becomes_a_record(line: str, record: OutgoingRecord) -> None:
    assert record_from_json(line) == record


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("", "not JSON"),
        ("hello", "not JSON"),
        ("[1]", "expected an object"),
        ('{"vlaue": 1}', "unknown field 'vlaue'"),
        ('{"key_base64": "?"}', "key_base64 is not base64"),
        ('{"value_base64": 5}', "value_base64 is not base64"),
        ('{"partition": -1}', "partition: expected a number from 0"),
        ('{"timestamp": "now"}', "timestamp: expected a number"),
        ('{"headers": [1]}', "headers: expected"),
        ('{"headers": "x"}', "headers: expected"),
    ],
)
def test_any_other_line_is_rejected_with_what_was_expected(line: str, error: str) -> None:
    with pytest.raises(ValueError) as raised:
        record_from_json(line)
    assert error in str(raised.value)


BYTES = st.none() | st.binary() | st.text().map(str.encode)


@examples(200)
@given(
    st.builds(
        OutgoingRecord,
        BYTES,
        BYTES,
        st.lists(st.tuples(st.text(), BYTES)),
        st.integers(0, 2**31 - 1),
        st.integers(0, 2**53),
    )
)
def test_a_written_record_is_read_back(record: OutgoingRecord) -> None:
    line = record_to_json(Message(record))
    assert "\n" not in line
    assert record_from_json(line) == record


def test_a_record_without_a_timestamp_has_no_such_field() -> None:
    fields = json.loads(record_to_json(Message(OutgoingRecord(None, b"v", [], 3, None), kind=0)))
    assert fields == {"topic": "t", "partition": 3, "offset": 7, "key": None, "value": "v"}
