"""The spool directory, as Flume's: finished files of a folder become records, each byte of them once.

On the driver a `Spool` finds the files, cuts them into pieces at the ends of records, and keeps a log of what it took:
the offsets of the stream are places in that log. The tasks read the pieces. What is committed is put away.
"""
