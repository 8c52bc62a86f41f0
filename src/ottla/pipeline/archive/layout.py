"""The folders and file names of an archive.

PATH/TOPIC/date=YYYY-MM-DD/hour=HH/BATCH-QUERY-RUN-N.parquet   records of one hour (UTC) by their timestamps
PATH/TOPIC@ID/...                                              the same of a topic that was created again, by its id
PATH/TOPIC/_delta_log/                                         the same files as a Delta table, with format = "delta"
PATH/_manifests/NUMBER.json                                    one step of the archive's history, of the newest ones
PATH/_manifests/folded/SEQUENCE.summary.json                   the sum of all earlier ones without their files
PATH/_manifests/files/SEQUENCE-FIRST-LAST-RANDOM.json          the files of the manifests from FIRST to LAST
PATH/_staging/                                                 files that are being written; nobody reads them
"""

import re
import uuid
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import NamedTuple

MANIFESTS = "_manifests"
# A folder of its own: a reader that lists it after the manifests finds those that were condensed in between.
FOLDED = f"{MANIFESTS}/folded"
FILE_LISTS = f"{MANIFESTS}/files"
# An older Ottla cannot read a condensed history, and must not take it for an empty one. It reads this file as one of
# its folds, and asks for a newer Ottla.
MARKER = f"{FOLDED}/0000000000-0000000000.json"
STAGING = "_staging"
DELTA_LOG = "_delta_log"
_DIGITS = 10
_EPOCH = date(1970, 1, 1)
MANIFEST_NAME = re.compile(rf"(\d{{{_DIGITS}}})\.json")
# files with many manifests word for word, of an older Ottla
FOLD_NAME = re.compile(rf"(?!0+-)\d{{{_DIGITS}}}-(\d{{{_DIGITS}}})\.json")
SUMMARY_NAME = re.compile(rf"(\d{{{_DIGITS}}})\.summary\.json")
# Groups: the sequence number of its summary, and the last manifest in it. Also the draft of a list, beside it on a
# local disk, whose writer was killed.
LIST_NAME = re.compile(
    rf"\.?(\d{{{_DIGITS}}})-\d{{{_DIGITS}}}-(\d{{{_DIGITS}}})-[0-9a-f]+\.json(?:\.[0-9a-f]+)?"
)
# enough of a query's id to distinguish the queries of one archive
_QUERY_ID_DIGITS = 12
_STAGED = re.compile(
    r"/_topic=(?P<topic>[^/]+)/_hour=(?P<hour>-?\d+)/_task=(?P<task>\d+)/[^/.][^/]*\.parquet$"
)
_MERGED = re.compile(r"(?:^|/)merge-(\d+)-[^/]+$")
_HOUR = re.compile(r"(?P<topic>[^/]+)/date=(?P<date>\d{4,}-\d\d-\d\d)/hour=(?P<hour>\d\d)/[^/]+")


def later_history(topic: str, topic_id: str) -> str:
    """The name of a history that is not the topic's first. No name of a topic has an @."""
    return f"{topic}@{topic_id}"


def topic_of(history: str) -> str:
    return history.partition("@")[0]


class Hour(NamedTuple):
    """The folder of one hour of a topic, UTC. `topic` is the history: the topic, or TOPIC@ID."""

    topic: str
    date: str
    hour: int

    @property
    def folder(self) -> str:
        return f"{self.topic}/date={self.date}/hour={self.hour:02}"

    @classmethod
    def since_epoch(cls, topic: str, hours: int) -> "Hour":
        days, hour = divmod(hours, 24)
        return cls(topic, (_EPOCH + timedelta(days)).isoformat(), hour)


class StagedFile(NamedTuple):
    """The records that one task of Spark has of an hour."""

    path: str
    bytes: int
    hour: Hour
    task: int


def batch_name(batch_id: int, query_id: str) -> str:
    return f"{batch_id:0{_DIGITS}}-{query_name(query_id)}"


def query_name(query_id: str) -> str:
    return query_id.replace("-", "")[:_QUERY_ID_DIGITS]


def run_name() -> str:
    """A new name for a run of a stage or a merge, so that it does not meet the files of a run that was killed."""
    return uuid.uuid4().hex[:8]


def merge_name(begun_at_ms: int, run: str) -> str:
    return f"merge-{begun_at_ms}-{run}"


def merge_begun_at(path: str) -> int | None:
    """The start of the merge that wrote a data file or a folder in `_staging`; None if a query wrote it."""
    found = _MERGED.search(path)
    return None if found is None else int(found[1])


def staging_query(name: str) -> str:
    """The name of the query that created a folder in `_staging`; the start time for a merge."""
    return name.split("-")[1] if "-" in name else ""


def is_abandoned(name: str, committed: Mapping[str, int], before_ms: int) -> bool:
    """Whether a folder in `_staging` is of a committed batch, or of a merge that started before `before_ms`.

    `committed` has the last committed batch of each query.
    """
    begun_at_ms = merge_begun_at(name)
    if begun_at_ms is not None:
        return begun_at_ms < before_ms
    batch = name.partition("-")[0]
    return batch.isdigit() and int(batch) <= committed.get(staging_query(name), -1)


def manifest_file(number: int) -> str:
    return f"{MANIFESTS}/{number:0{_DIGITS}}.json"


def summary_file(sequence: int) -> str:
    return f"{FOLDED}/{sequence:0{_DIGITS}}.summary.json"


def list_name(sequence: int, first: int, last: int) -> str:
    """A new name, for a list of the files of manifests, to which the summary with this sequence number will refer."""
    return f"{sequence:0{_DIGITS}}-{first:0{_DIGITS}}-{last:0{_DIGITS}}-{uuid.uuid4().hex[:8]}.json"


def data_file(hour: Hour, name: str, number: int) -> str:
    return f"{hour.folder}/{name}-{number:03}.parquet"


def hour_of(path: str) -> Hour:
    """The hour of a data file, by its path in the archive."""
    found = _HOUR.fullmatch(path)
    if found is None:
        raise ValueError(f"{path} is not the path of a data file")
    return Hour(found["topic"], found["date"], int(found["hour"]))


def path_below_history(url: str) -> str:
    """The end of a data file's path or URL, from the hour's folder on: Spark writes the rest in different ways."""
    return url[url.rindex("/date=") :]


def staged_file(path: str, size: int) -> StagedFile | None:
    """None if it is not a data file. Below the staging folder, Spark makes a level of folders of each column."""
    found = _STAGED.search(path)
    if found is None:
        return None
    return StagedFile(path, size, Hour.since_epoch(found["topic"], int(found["hour"])), int(found["task"]))


def final_names(staged: Sequence[StagedFile], name: str) -> list[str]:
    """The final path of each staged file, numbered within its hour in the order of the tasks."""
    counts: dict[Hour, int] = {}
    final = {}
    for file in sorted(staged, key=lambda file: file.task):
        final[file.path] = data_file(file.hour, name, counts.get(file.hour, 0))
        counts[file.hour] = counts.get(file.hour, 0) + 1
    return [final[file.path] for file in staged]
