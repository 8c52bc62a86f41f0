"""Which run archives a topic: the one that started last, as with Kafka's transactional ids.

A run says in the archive's history that the topics are its own before it looks at what is archived. Another run that
still lives finds that in the history when it wants to add its next batch, and stops. So two pipelines that archive a
topic into one path never cover an offset twice, and one that was killed is followed at once: no lease has to expire.
"""

import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from ottla.pipeline.archive.errors import explain_write_errors
from ottla.pipeline.archive.layout import STAGING, is_abandoned, query_name, run_name
from ottla.pipeline.archive.manifest import Archived, Claim
from ottla.pipeline.archive.store import Archive
from ottla.pipeline.errors import PipelineError

# Longer than a merge is expected to run
MERGE_TIME_MAX_MS = 24 * 3_600_000


@dataclass(frozen=True)
class Run:
    """One start of a stage, and the topics that are its own until another run takes them over."""

    name: str
    topics: tuple[str, ...]
    url: str

    def check(self, archived: Archived) -> None:
        for topic in self.topics:
            owner = archived.owners.get(topic)
            if owner is None or owner.run != self.name:
                raise ownership_lost(self.url, topic, owner)


def ownership_lost(url: str, topic: str, owner: Claim | None) -> PipelineError:
    if owner is None:
        by = "its manifests are gone"
    else:
        since = datetime.fromtimestamp(owner.claimed_at_ms // 1000, UTC)
        by = f"since {since:%Y-%m-%d %H:%M:%S} UTC {owner.who} does"
    return PipelineError(
        f"This run no longer archives the topic {topic} into {url}: {by}.",
        "Let one pipeline at a time archive a topic into a path. Nothing is lost, and nothing is archived twice.",
    )


def claim_topics(archive: Archive, topics: Sequence[str]) -> Run:
    """From here on only this run adds batches of the topics: what is archived of them does not grow otherwise."""
    run = Run(run_name(), tuple(topics), archive.url)
    who = f"process {os.getpid()} on {socket.gethostname()}"
    with explain_write_errors(archive.url):
        claim = Claim(run.name, who, time.time_ns() // 1_000_000, run.topics)
        archive.commit(claim, lambda _: None)
        clean_up(archive)
    return run


def clean_up(archive: Archive) -> None:
    """Folds manifests where there are many, and removes what batches and merges that died have staged."""
    archive.fold()
    committed = {query_name(query): batch for query, batch in archive.load().batches.items()}
    before_ms = time.time_ns() // 1_000_000 - MERGE_TIME_MAX_MS
    for name in archive.files.names(STAGING):
        if is_abandoned(name, committed, before_ms):
            archive.files.delete(f"{STAGING}/{name}")
