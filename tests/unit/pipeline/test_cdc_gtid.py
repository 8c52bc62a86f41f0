"""Positions of MariaDB's GTIDs."""

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.pipeline.ingest.cdc.mysql.mariadb_gtid import Gtid, Position

GTIDS = st.builds(Gtid, st.integers(0, 5), st.integers(1, 3), st.integers(1, 50))
POSITIONS = st.lists(GTIDS).map(lambda gtids: Position({gtid.domain: gtid for gtid in gtids}))


@settings(deadline=None)
@given(POSITIONS)
def test_a_position_is_read_as_it_was_written(position: Position) -> None:
    assert Position.parse(str(position)) == position


def test_servers_write_spaces_between_domains() -> None:
    assert Position.parse("0-1-7, 3-1-9") == Position({0: Gtid(0, 1, 7), 3: Gtid(3, 1, 9)})


@settings(deadline=None)
@given(POSITIONS, GTIDS)
def test_a_position_includes_what_it_was_moved_over_and_all_before(position: Position, gtid: Gtid) -> None:
    moved = position.after(gtid)
    assert moved.includes(gtid)
    assert moved.includes(gtid._replace(sequence=gtid.sequence - 1))
    assert not moved.includes(gtid._replace(sequence=gtid.sequence + 1))


@settings(deadline=None)
@given(POSITIONS, POSITIONS)
def test_a_position_reaches_another_when_no_transaction_lies_between(one: Position, other: Position) -> None:
    assert one.reaches(other) == (one.transactions_to(other) == 0)


@settings(deadline=None)
@given(POSITIONS)
def test_every_position_reaches_the_beginning(position: Position) -> None:
    assert position.reaches(Position({}))


def test_a_transaction_of_another_server_in_the_domain_goes_on_with_its_numbers() -> None:
    assert Position.parse("0-1-7").after(Gtid(0, 2, 8)) == Position.parse("0-2-8")
    assert Position.parse("0-2-8").includes(Gtid(0, 1, 7))
