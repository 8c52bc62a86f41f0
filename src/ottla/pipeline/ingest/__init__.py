"""The sources of a pipeline: packages that write records into topics, each behind a `kind` of `[sources.NAME]`.

- `spooldir`: the files of a folder
- `cdc`: the changes of a database, MariaDB and MySQL (`mysql`) or PostgreSQL (`postgres`)
- `reload`: records of an archive, back into topics

A source has three public modules: `stage` (the class behind its `kind`), `settings` (its table in `pipeline.toml`) and
`source` (its streaming source for Spark). Everything else is internal to its package.
"""
