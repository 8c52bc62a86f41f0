"""Ready parts for transforms: each takes rows and gives rows, in columns, and marks a bad record instead of raising."""

from ottla.pipeline.transform.parts.choosing import keep, reject, route
from ottla.pipeline.transform.parts.csv import parse_csv
from ottla.pipeline.transform.parts.debezium import parse_debezium
from ottla.pipeline.transform.parts.deduplicating import deduplicate
from ottla.pipeline.transform.parts.flattening import flatten
from ottla.pipeline.transform.parts.guarding import guard
from ottla.pipeline.transform.parts.json import parse_json, write_json

__all__ = [
    "deduplicate",
    "flatten",
    "guard",
    "keep",
    "parse_csv",
    "parse_debezium",
    "parse_json",
    "reject",
    "route",
    "write_json",
]
