"""Where things lie in an archive, and how they are named.

PATH/TOPIC/date=YYYY-MM-DD/hour=HH/BATCH-QUERY-RUN-N.parquet   records of one hour (UTC) by their timestamps
PATH/TOPIC/_delta_log/                                         the same files as a Delta table, where that is wanted
PATH/_manifests/NUMBER.json                                    one step of the archive's history
PATH/_manifests/folded/FIRST-LAST.json                         many of them in one file
PATH/_staging/                                                 what is being written; nobody reads it
"""

import re
import uuid
from collections.abc import Mapping
from typing import NamedTuple

MANIFESTS = "_manifests"
# A folder of its own: whoever lists it after the manifests finds in it whatever was folded meanwhile.
FOLDED = f"{MANIFESTS}/folded"
STAGING = "_staging"
DELTA_LOG = "_delta_log"
DIGITS = 10
MANIFEST_NAME = re.compile(rf"(\d{{{DIGITS}}})\.json")
FOLD_NAME = re.compile(rf"\d{{{DIGITS}}}-\d{{{DIGITS}}}\.json")
# As much of a query's id as keeps two queries of one archive apart.
QUERY_ID_DIGITS = 12
STAGED = re.compile(r"/_topic=(?P<topic>[^/]+)/date=(?P<date>[^/]+)/hour=(?P<hour>\d+)/[^/.][^/]*\.parquet$")
MERGED = re.compile(r"(?:^|/)merge-(\d+)-[^/]+$")
HOUR = re.compile(r"(?P<topic>[^/]+)/date=(?P<date>\d{4,}-\d\d-\d\d)/hour=(?P<hour>\d\d)/[^/]+")


class Hour(NamedTuple):
    """The folder of one hour of a topic, UTC."""

    topic: str
    date: str
    hour: int

    @property
    def folder(self) -> str:
        return f"{self.topic}/date={self.date}/hour={self.hour:02}"


def batch_name(batch_id: int, query_id: str) -> str:
    return f"{batch_id:0{DIGITS}}-{query_name(query_id)}"


def query_name(query_id: str) -> str:
    return query_id.replace("-", "")[:QUERY_ID_DIGITS]


def run_name() -> str:
    """Of one run of a stage or of a merge. What a run that was killed left behind has another, and is not met."""
    return uuid.uuid4().hex[:8]


def merge_name(begun_at_ms: int, run: str) -> str:
    return f"merge-{begun_at_ms}-{run}"


def merge_begun_at(path: str) -> int | None:
    """When the merge began that wrote a data file, or a folder in `_staging`; None of what an archiving query wrote."""
    found = MERGED.search(path)
    return None if found is None else int(found[1])


def staging_query(name: str) -> str:
    """The query, as in the names of its batches, that made a folder in `_staging`; of a merge it is a time."""
    return name.split("-")[1] if "-" in name else ""


def is_abandoned(name: str, committed: Mapping[str, int], before_ms: int) -> bool:
    """Of a folder in `_staging`: its batch is committed (`committed` by query), or its merge began before a time."""
    begun_at_ms = merge_begun_at(name)
    if begun_at_ms is not None:
        return begun_at_ms < before_ms
    batch = name.partition("-")[0]
    return batch.isdigit() and int(batch) <= committed.get(staging_query(name), -1)


def manifest_file(number: int) -> str:
    return f"{MANIFESTS}/{number:0{DIGITS}}.json"


def fold_file(first: int, last: int) -> str:
    return f"{FOLDED}/{first:0{DIGITS}}-{last:0{DIGITS}}.json"


def data_file(hour: Hour, name: str, number: int) -> str:
    return f"{hour.folder}/{name}-{number:03}.parquet"


def hour_of(path: str) -> Hour:
    """The hour of a data file, by its path in the archive."""
    found = HOUR.fullmatch(path)
    if found is None:
        raise ValueError(f"{path} is not the path of a data file")
    return Hour(found["topic"], found["date"], int(found["hour"]))


def staged_hour(path: str) -> Hour:
    """The hour of a file that Spark wrote below the staging folder, where each column is a level of folders."""
    found = STAGED.search(path)
    if found is None:
        raise ValueError(f"{path} is not the path of a staged file")
    return Hour(found["topic"], found["date"], int(found["hour"]))


def final_names(staged: list[str], name: str) -> dict[str, str]:
    """Where each staged file goes: numbered within its hour, in the order of the tasks that wrote them."""
    counts: dict[Hour, int] = {}
    final = {}
    for path in sorted(staged):
        hour = staged_hour(path)
        final[path] = data_file(hour, name, counts.get(hour, 0))
        counts[hour] = counts.get(hour, 0) + 1
    return final
