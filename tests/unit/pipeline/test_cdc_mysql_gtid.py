"""Sets of MySQL's GTIDs, against plain sets of Python's."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.ingest.cdc.mysql.binlog.gtid_events import tagged_gtid
from ottla.pipeline.ingest.cdc.mysql.mysql_gtid import GtidSet, MySqlGtid, Source
from ottla.pipeline.ingest.cdc.mysql.positions import place, place_like

A, B = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "be221db4-e121-11f1-950b-02fc00000001"
SOURCES = st.sampled_from([Source(A), Source(A, "blue"), Source(B), Source(B, "_x9")])
GTIDS = st.builds(MySqlGtid, SOURCES, st.integers(1, 12))
PLAIN = st.frozensets(GTIDS, max_size=25)


def made(gtids: frozenset[MySqlGtid]) -> GtidSet:
    position = GtidSet({})
    for gtid in gtids:
        position = position.after(gtid)
    return position


@settings(deadline=None)
@given(PLAIN)
def test_a_set_is_read_as_it_was_written(gtids: frozenset[MySqlGtid]) -> None:
    assert GtidSet.parse(str(made(gtids))) == made(gtids)
    assert made(gtids).age == len(gtids)


@settings(deadline=None)
@given(PLAIN, PLAIN, GTIDS)
def test_sets_answer_as_plain_sets_do(
    one: frozenset[MySqlGtid], other: frozenset[MySqlGtid], gtid: MySqlGtid
) -> None:
    assert made(one).includes(gtid) == (gtid in one)
    assert made(one).reaches(made(other)) == (other <= one)
    assert made(one).transactions_to(made(other)) == len(other - one)
    assert made(one).after(gtid) == made(one | {gtid})


def test_servers_write_lines_capitals_and_tags() -> None:
    text = f"{A.upper()}:1-3:5:Blue:7:9-10,\n{B}:4"
    assert str(GtidSet.parse(text)) == f"{A}:1-3:5:blue:7:9-10,{B}:4"
    assert str(MySqlGtid(Source(A, "blue"), 9)) == f"{A}:blue:9"
    assert GtidSet.parse("") == GtidSet({})


@pytest.mark.parametrize("text", ["0-1-42", f"{A}:1-x", "nothing:1"])
def test_what_is_no_set_is_not_taken_for_one(text: str) -> None:
    with pytest.raises(ValueError, match=r"no set|invalid literal"):
        GtidSet.parse(text)


def test_without_tags_the_server_is_asked_in_the_form_that_all_versions_know() -> None:
    plain = GtidSet.parse(f"{A}:1-3:5").encoded()
    assert plain[:8] == (1).to_bytes(8, "little")
    assert plain[8:24].hex() == A.replace("-", "")
    numbers = [int.from_bytes(plain[at : at + 8], "little") for at in range(24, len(plain), 8)]
    assert numbers == [2, 1, 4, 5, 6]
    tagged = GtidSet.parse(f"{A}:blue:1").encoded()
    assert tagged[:8] == bytes([1, 1, 0, 0, 0, 0, 0, 1])
    assert tagged[24:29] == bytes([4 << 1]) + b"blue"


def test_a_tagged_gtid_is_read_from_its_event() -> None:
    """Numbers are shifted by one bit; those of more than seven bits have more bytes, told by ones at the low end."""
    octets = b"".join(
        bytes([octet << 1]) if octet < 128 else (octet << 2 | 1).to_bytes(2, "little")
        for octet in bytes.fromhex(A.replace("-", ""))
    )
    number = ((70_000 << 1) << 3 | 0b011).to_bytes(3, "little")
    data = bytes([2, 200, 0, 0, 2, 2]) + octets + bytes([4]) + number + bytes([6, 4 << 1]) + b"blue" + b"more"
    assert tagged_gtid(data) == MySqlGtid(Source(A, "blue"), 70_000)


def test_a_checkpoint_of_another_kind_of_server_is_told() -> None:
    mariadb, mysql = place("0-1-7"), place(f"{A}:1-7")
    assert place_like(mysql, f"{A}:1-3", "h:1").transactions_to(mysql) == 4
    for now, before in ((mariadb, mysql), (mysql, mariadb)):
        with pytest.raises(PipelineError, match=r"no place in the binlog of the server at h:1.*new snapshot"):
            place_like(now, str(before), "h:1")
