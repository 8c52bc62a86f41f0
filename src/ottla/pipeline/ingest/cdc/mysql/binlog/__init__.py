"""The binlog of MariaDB and MySQL: reads its events over replication and decodes them into records.

The rest of `mysql` uses `reader` only: `read_changes` for the records between two positions, `position_after` for the
end of a batch, and `open_stream` to test whether the binlog can be read.
"""
