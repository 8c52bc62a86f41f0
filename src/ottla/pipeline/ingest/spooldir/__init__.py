"""The spool directory, as Flume's: the files of a folder become records, each byte of them once.

On the driver a `Spool` finds complete files, cuts them into pieces at the ends of records, and writes the pieces to a
log of taken files: the offsets of the stream are entries of that log. Tasks read the pieces. When all records of a file
are committed, the file is finished: renamed, moved, deleted or kept.

Public: `stage.SpoolDirSource`, `settings.SpoolDirSettings` and `source.SpoolDirDataSource`. The other modules are
internal.
"""
