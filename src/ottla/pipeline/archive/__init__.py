"""The stage `[sinks.NAME]` with `kind = "archive"`: topics as Parquet files, with manifests of offset ranges.

`stage` archives. `merge`, `verification`, `coverage`, `table` and `embedded` are behind the commands `merge`, `verify`
and `sql`. `samples` reads the timestamps of records. `store`, `manifest` and `filesystem` are for a reload, which
reads an archive. The other modules are internal.
"""
