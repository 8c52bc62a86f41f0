"""Which run owns a topic of the archive: the one that started last, as with Kafka's transactional ids.

A run adds a claim of its topics to the archive's history before it reads what is archived. An earlier run that is still
alive finds the claim when it adds its next batch, and stops. And a run adds no batch with offsets that are archived
already: another run may have archived them after this run's checkpoint was written. So two pipelines that archive a
topic into one path never archive an offset twice, and a run can follow one that was killed at once, without waiting for
a lease.
"""

import os
import socket
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from ottla.pipeline.archive.errors import explain_write_errors
from ottla.pipeline.archive.layout import STAGING, is_abandoned, query_name, run_name
from ottla.pipeline.archive.manifest import Claim, Summary
from ottla.pipeline.archive.ranges import Span
from ottla.pipeline.archive.store import Archive
from ottla.pipeline.errors import PermanentStageError, PipelineError
from ottla.pipeline.spark.offsets import OffsetRange

# longer than any merge should run
_MERGE_TIME_MAX_MS = 24 * 3_600_000


@dataclass(frozen=True)
class Run:
    """One start of a stage, and the topics that it owns until another run claims them."""

    name: str
    topics: tuple[str, ...]
    url: str

    def check(self, archived: Summary) -> None:
        for topic in self.topics:
            owner = archived.owners.get(topic)
            if owner is None or owner.run != self.name:
                raise _ownership_lost(self.url, topic, owner)


def _ownership_lost(url: str, topic: str, owner: Claim | None) -> PipelineError:
    what = f"This run no longer archives the topic {topic} into {url}"
    remedy = "Run only one pipeline at a time that archives a topic into a path. No record is lost or archived twice."
    if owner is None:
        return PipelineError(f"{what}: its manifests are gone.", remedy)
    since = datetime.fromtimestamp(owner.claimed_at_ms // 1000, UTC)
    # Permanent, because a restart would claim the topic again and stop the other run.
    return PermanentStageError(f"{what}: {owner.who} does so since {since:%Y-%m-%d %H:%M:%S} UTC.", remedy)


def check_is_new(archived: Summary, ranges: Iterable[OffsetRange], url: str, checkpoint: str) -> None:
    """Raises PermanentStageError if offsets are archived already. The topics of the ranges are histories."""
    ends = archived.ends
    for one in ranges:
        end = ends.get(one.at, 0)
        if one.start < end:
            raise PermanentStageError(
                f"{one.at} offset {Span(one.start, min(one.end, end))} is archived already in {url}: another stage or "
                "checkpoint archived it, or the topic lost its last records and has new ones in their place.",
                f"To continue after the archived offsets, remove this stage's checkpoint {checkpoint}.",
            )


def claim_topics(archive: Archive, topics: Sequence[str]) -> Run:
    """From here on only this run can add batches of the topics."""
    run = Run(run_name(), tuple(topics), archive.url)
    who = f"process {os.getpid()} on {socket.gethostname()}"
    with explain_write_errors(archive.url):
        claim = Claim(run.name, who, time.time_ns() // 1_000_000, run.topics)
        archive.commit(claim, lambda _: None)
        clean_up(archive)
    return run


def clean_up(archive: Archive) -> None:
    """Condenses manifests if there are many, and removes what batches, merges and other runs left that died."""
    archive.condense()
    archive.remove_condensed()
    committed = {query_name(query): batch for query, batch in archive.summary().batches.items()}
    before_ms = time.time_ns() // 1_000_000 - _MERGE_TIME_MAX_MS
    for name in archive.files.names(STAGING):
        if is_abandoned(name, committed, before_ms):
            archive.files.delete(f"{STAGING}/{name}")
