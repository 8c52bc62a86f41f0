"""Reads a Delta table of numbered records again and again, in DuckDB alone: `python ... TABLE RECORDS`.

Prints a line for each read: the number of rows, of their offsets and of those whose value is not their offset, and the
first and the last offset. It ends when the table has so many records.
"""

import sys

import duckdb

QUERY = """
    select count(*), count(distinct "offset"), count(*) filter (decode(value) != cast("offset" as varchar)),
        min("offset"), max("offset")
    from delta_scan(?)
"""


def main() -> None:
    table, records = sys.argv[1], int(sys.argv[2])
    connection = duckdb.connect()
    connection.execute("INSTALL delta; LOAD delta;")
    rows = 0
    while rows < records:
        found = connection.execute(QUERY, [table]).fetchone()
        assert found is not None
        rows = found[0]
        print(*found, flush=True)


if __name__ == "__main__":
    main()
