"""The stage `[sinks.NAME]` with `kind = "archive"`: topics as Parquet files, with manifests of offset ranges.

`stage` archives; `merge`, `verification` and `table` are behind the commands `merge`, `verify` and `sql`; `store` and
`manifest` are for a reload, which reads an archive. The other modules are internal.
"""
