"""The data pipeline: files, databases and archives into raw topics, which are transformed and archived on Spark.

Every stage is a Structured Streaming query. The pipeline reaches a cluster only over the wire, so it runs on Apache
Kafka too.

For programs: `ottla.pipeline.spark` (the connector `format("ottla")`), `ottla.pipeline.transform.parts` (parts for
transforms) and `ottla.pipeline.archive.table` (an archive as a table).

For the commands: `config` reads a `pipeline.toml`, `validation` checks it and `foreground` runs it. `replay`, `status`,
`spark_submit`, `template` and `reference` serve the other commands, and `demo` the tour. They raise the errors in
`errors`.

The stages are in `ingest`, `transform` and `archive`, which do not import each other. They share `stage`, `settings`,
`topics`, `files`, `durable_files` and `query_errors`.
"""
