"""Where things lie in an archive, and how they are named.

PATH/TOPIC/date=YYYY-MM-DD/hour=HH/BATCH-QUERY-N.parquet   records of one hour (UTC) by their timestamps
PATH/_manifests/batch-BATCH-QUERY.json                     what a batch added
PATH/_manifests/merge-NUMBER.json                          which files took the place of which
PATH/_staging/                                             what is being written; nobody reads it
"""

import re
from typing import NamedTuple

MANIFESTS = "_manifests"
STAGING = "_staging"
MANIFEST_NAME = re.compile(r"(batch-\d+-[0-9a-f]+|merge-\d+)\.json")
DIGITS = 10
# As much of a query's id as keeps two queries of one archive apart.
QUERY_ID_DIGITS = 12
STAGED = re.compile(r"/_topic=(?P<topic>[^/]+)/date=(?P<date>[^/]+)/hour=(?P<hour>\d+)/[^/.][^/]*\.parquet$")
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
    return f"{batch_id:0{DIGITS}}-{query_id.replace('-', '')[:QUERY_ID_DIGITS]}"


def merge_name(number: int) -> str:
    return f"merge-{number:0{DIGITS}}"


def batch_manifest(name: str) -> str:
    return f"{MANIFESTS}/batch-{name}.json"


def merge_manifest(number: int) -> str:
    return f"{MANIFESTS}/{merge_name(number)}.json"


def merge_number(name: str) -> int:
    """Of a manifest's file name."""
    return int(name.removeprefix("merge-").removesuffix(".json"))


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
