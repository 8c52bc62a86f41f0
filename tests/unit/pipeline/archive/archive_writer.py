"""A process that adds batches and merges to an archive until it is killed: `python -m ... FOLDER PARTITION`.

It prints the number of each batch that is added, and condenses after each.
"""

import itertools
import sys
import uuid
from dataclasses import replace

from tests.unit.pipeline.archive.archive_samples import a_batch, a_file

from ottla.pipeline.archive import store
from ottla.pipeline.archive.manifest import Archived, Merge
from ottla.pipeline.archive.store import Archive

CONDENSE_AT = 5
MERGE_EVERY = 7


def main(folder: str, partition: int) -> None:
    store.CONDENSE_AT = CONDENSE_AT
    archive = Archive.at(folder)
    query, run = f"query-{partition}", uuid.uuid4().hex[:8]
    for number in itertools.count(archive.summary().batches.get(query, -1) + 1):
        file = a_file(f"{number}-{partition}-{run}", (partition, number, number))
        batch = replace(a_batch(number, [("raw", partition, number, number + 1)], file), query_id=query)
        archive.commit(batch, lambda _: None)
        print(number, flush=True)
        if number % MERGE_EVERY == MERGE_EVERY - 1:
            merge(archive, partition, f"{number}-{run}")
        archive.condense()


def merge(archive: Archive, partition: int, name: str) -> None:
    small = [file for file in archive.load().files.values() if partition in file.slices]
    first = min(file.slices[partition].first for file in small)
    last = max(file.slices[partition].last for file in small)
    merged = a_file(f"merge-{name}", (partition, first, last))

    def check(archived: Archived) -> None:
        assert all(file.path in archived.files for file in small)

    archive.commit_merge(Merge(1, (merged,), tuple(file.path for file in small)), check)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
