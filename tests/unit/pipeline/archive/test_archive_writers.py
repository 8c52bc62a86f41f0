"""Processes that write into one archive and condense it are killed at random moments: each batch is there once."""

import random
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.pipeline.archive.archive_writer import CONDENSE_AT

from ottla.model.ids import TopicPartition
from ottla.pipeline.archive import store
from ottla.pipeline.archive.ranges import Span, spans_by_partition
from ottla.pipeline.archive.store import Archive

ROOT = Path(__file__).parents[4]
WRITERS, KILLS, BATCHES_MAX = 3, 12, 12


def start(folder: Path, partition: int) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "tests.unit.pipeline.archive.archive_writer",
        str(folder),
        str(partition),
    ]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_writers_that_are_killed_lose_no_batch_and_repeat_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = random.SystemRandom().randrange(10_000)
    print(f"seed {seed}")
    chance = random.Random(seed)
    writers = [start(tmp_path, partition) for partition in range(WRITERS)]
    added = dict.fromkeys(range(WRITERS), -1)

    def read(partition: int, lines: int) -> None:
        output = writers[partition].stdout
        assert output is not None
        for _ in range(lines):
            line = output.readline()
            if not line:
                break
            assert int(line) == added[partition] + 1 or int(line) == added[partition] + 2
            added[partition] = int(line)

    def end(partition: int) -> None:
        """Reads also what the process printed before it was killed."""
        writer = writers[partition]
        writer.kill()
        read(partition, sys.maxsize)
        writer.wait()
        assert writer.stdout is not None
        writer.stdout.close()

    try:
        for _ in range(KILLS):
            partition = chance.randrange(WRITERS)
            read(partition, chance.randrange(1, BATCHES_MAX))
            end(partition)
            writers[partition] = start(tmp_path, partition)
    finally:
        for partition in range(WRITERS):
            end(partition)

    archive = Archive.at(str(tmp_path))
    monkeypatch.setattr(store, "CONDENSE_AT", CONDENSE_AT)
    for _ in range(2):
        archived = archive.load()
        for partition, last in added.items():
            batches = archived.batches[f"query-{partition}"]
            # One may be added whose number was not printed any more.
            assert batches in (last, last + 1)
            at = TopicPartition("raw", partition)
            spans = spans_by_partition(archived.ranges)[at]
            assert archived.ends[at] == batches + 1
            assert sum(span.end - span.start for span in spans) == batches + 1
            covered = sorted(
                Span(one.first, one.last + 1)
                for file in archived.files.values()
                if (one := file.slices.get(partition)) is not None
            )
            assert [span.start for span in covered] == [0, *(span.end for span in covered[:-1])]
            assert covered[-1].end == archived.records[at] == batches + 1
        assert archived.missing == ()
        archive.condense()
        archive.remove_condensed()
    newest = archive.recent().condensed
    left = set(archive.files.names("_manifests/files")) - {one.name for one in newest.lists}
    # A writer may have been killed just before it wrote the next summary.
    assert all(int(name.lstrip(".")[:10]) > newest.sequence for name in left), left
