"""Positions of MariaDB's GTIDs."""

from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from ottla.pipeline.ingest.cdc.mysql.mariadb_gtid import MariaDbGtid, MariaDbPosition

GTIDS = st.builds(MariaDbGtid, st.integers(0, 5), st.integers(1, 3), st.integers(1, 50))
POSITIONS = st.lists(GTIDS).map(lambda gtids: MariaDbPosition({gtid.domain: gtid for gtid in gtids}))


@examples()
@given(POSITIONS)
def test_a_position_is_read_as_it_was_written(position: MariaDbPosition) -> None:
    assert MariaDbPosition.parse(str(position)) == position


def test_servers_write_spaces_between_domains() -> None:
    assert MariaDbPosition.parse("0-1-7, 3-1-9") == MariaDbPosition(
        {0: MariaDbGtid(0, 1, 7), 3: MariaDbGtid(3, 1, 9)}
    )


@examples()
@given(POSITIONS, GTIDS)
def test_a_position_after_a_transaction_includes_it_and_all_before_it(
    position: MariaDbPosition, gtid: MariaDbGtid
) -> None:
    moved = position.after(gtid)
    assert moved.includes(gtid)
    assert moved.includes(gtid._replace(sequence=gtid.sequence - 1))
    assert not moved.includes(gtid._replace(sequence=gtid.sequence + 1))


@examples()
@given(POSITIONS, POSITIONS)
def test_a_position_reaches_another_when_no_transaction_lies_between(
    one: MariaDbPosition, other: MariaDbPosition
) -> None:
    assert one.reaches(other) == (one.transactions_to(other) == 0)


@examples()
@given(POSITIONS)
def test_every_position_reaches_the_beginning(position: MariaDbPosition) -> None:
    assert position.reaches(MariaDbPosition({}))


def test_servers_of_one_domain_share_its_sequence_numbers() -> None:
    assert MariaDbPosition.parse("0-1-7").after(MariaDbGtid(0, 2, 8)) == MariaDbPosition.parse("0-2-8")
    assert MariaDbPosition.parse("0-2-8").includes(MariaDbGtid(0, 1, 7))
