"""Ready parts for transforms. Each takes rows and returns rows, and marks a bad record instead of raising an error."""

from ottla.pipeline.transform.parts.csv import parse_csv
from ottla.pipeline.transform.parts.debezium import parse_debezium
from ottla.pipeline.transform.parts.deduplication import deduplicate
from ottla.pipeline.transform.parts.filters import keep, reject, route
from ottla.pipeline.transform.parts.json import parse_json, write_json
from ottla.pipeline.transform.parts.record_functions import guard
from ottla.pipeline.transform.parts.structs import flatten

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
