"""Sets of MySQL's GTIDs, compared with sets of Python."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.ingest.cdc.mysql.binlog.gtid_events import decode_tagged_gtid
from ottla.pipeline.ingest.cdc.mysql.mysql_gtid import GtidSet, GtidSource, MySqlGtid
from ottla.pipeline.ingest.cdc.mysql.positions import parse_position, parse_position_like

A, B = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "be221db4-e121-11f1-950b-02fc00000001"
SOURCES = st.sampled_from([GtidSource(A), GtidSource(A, "blue"), GtidSource(B), GtidSource(B, "_x9")])
GTIDS = st.builds(MySqlGtid, SOURCES, st.integers(1, 12))
PLAIN = st.frozensets(GTIDS, max_size=25)


def gtid_set(gtids: frozenset[MySqlGtid]) -> GtidSet:
    position = GtidSet({})
    for gtid in gtids:
        position = position.after(gtid)
    return position


@examples()
@given(PLAIN)
def test_a_set_is_read_as_it_was_written(gtids: frozenset[MySqlGtid]) -> None:
    assert GtidSet.parse(str(gtid_set(gtids))) == gtid_set(gtids)
    assert gtid_set(gtids).progress == len(gtids)


@examples()
@given(PLAIN, PLAIN, GTIDS)
def test_sets_behave_like_those_of_python(
    one: frozenset[MySqlGtid], other: frozenset[MySqlGtid], gtid: MySqlGtid
) -> None:
    assert gtid_set(one).includes(gtid) == (gtid in one)
    assert gtid_set(one).reaches(gtid_set(other)) == (other <= one)
    assert gtid_set(one).transactions_to(gtid_set(other)) == len(other - one)
    assert gtid_set(one).after(gtid) == gtid_set(one | {gtid})


def test_servers_write_lines_capitals_and_tags() -> None:
    text = f"{A.upper()}:1-3:5:Blue:7:9-10,\n{B}:4"
    assert str(GtidSet.parse(text)) == f"{A}:1-3:5:blue:7:9-10,{B}:4"
    assert str(MySqlGtid(GtidSource(A, "blue"), 9)) == f"{A}:blue:9"
    assert GtidSet.parse("") == GtidSet({})


@pytest.mark.parametrize("text", ["0-1-42", f"{A}:1-x", "nothing:1"])
def test_other_texts_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a set|invalid literal"):
        GtidSet.parse(text)


def test_a_set_without_tags_is_encoded_in_the_form_that_all_versions_accept() -> None:
    plain = GtidSet.parse(f"{A}:1-3:5").encode()
    assert plain[:8] == (1).to_bytes(8, "little")
    assert plain[8:24].hex() == A.replace("-", "")
    numbers = [int.from_bytes(plain[at : at + 8], "little") for at in range(24, len(plain), 8)]
    assert numbers == [2, 1, 4, 5, 6]
    tagged = GtidSet.parse(f"{A}:blue:1").encode()
    assert tagged[:8] == bytes([1, 1, 0, 0, 0, 0, 0, 1])
    assert tagged[24:29] == bytes([4 << 1]) + b"blue"


def test_a_tagged_gtid_is_decoded_from_its_event() -> None:
    """Numbers are shifted by one bit. Larger ones have more bytes, which the trailing ones of the first byte count."""
    octets = b"".join(
        bytes([octet << 1]) if octet < 128 else (octet << 2 | 1).to_bytes(2, "little")
        for octet in bytes.fromhex(A.replace("-", ""))
    )
    number = ((70_000 << 1) << 3 | 0b011).to_bytes(3, "little")
    data = bytes([2, 200, 0, 0, 2, 2]) + octets + bytes([4]) + number + bytes([6, 4 << 1]) + b"blue" + b"more"
    assert decode_tagged_gtid(data) == MySqlGtid(GtidSource(A, "blue"), 70_000)


def test_a_checkpoint_of_another_type_of_server_is_an_error() -> None:
    mariadb, mysql = parse_position("0-1-7"), parse_position(f"{A}:1-7")
    assert parse_position_like(mysql, f"{A}:1-3", "h:1").transactions_to(mysql) == 4
    for now, before in ((mariadb, mysql), (mysql, mariadb)):
        with pytest.raises(
            PipelineError, match=r"not a position in the binlog of the server at h:1.*new snapshot"
        ):
            parse_position_like(now, str(before), "h:1")
