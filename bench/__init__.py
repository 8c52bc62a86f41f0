"""Benchmarks of Ottla beside Apache Kafka: the same librdkafka clients measure both, alternately, in one run.

`python -m bench` (or `make bench`). Each scenario is a file in `scenarios/`; `runner` runs the rounds, `report` and
`plot` write the results. `python -m bench --only cluster` runs three nodes of each (`nodes`), `--quick` small sizes,
`--scratch DIR` puts the data elsewhere.
"""
