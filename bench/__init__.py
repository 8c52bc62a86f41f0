"""Ottla side by side with Apache Kafka: the same librdkafka clients on both, turn about, in one run.

`python -m bench` (or `make bench`). Each scenario is a file in `scenarios/`; `runner` takes the rounds, `report` and
`plot` write what came out.
"""
