"""Adds batches to an archive, without data files: `python -m bench.archive_client FOLDER FILES`.

It fills the archive with FILES files, and then measures a process that starts on it: the steps of 200 batches in the
archive. It prints their mean and the longest in milliseconds, and its own peak memory in MB. The process also reads all
files at its start and hourly, as a driver does to clean up and to merge; that counts for the memory only.
"""

import resource
import subprocess
import sys
import time

from ottla.pipeline.archive.layout import MANIFESTS, Hour, data_file
from ottla.pipeline.archive.manifest import Batch, DataFile
from ottla.pipeline.archive.slices import Slice
from ottla.pipeline.archive.store import Archive
from ottla.pipeline.spark.offsets import OffsetRange

TOPIC, QUERY = "raw", "3f0c6ee4-13a2-4f0e-8c7b-2f3c6f1f7d55"
PARTITIONS = 32
RECORDS = 10
FILES_A_BATCH = 10
MEASURED = 200
# of one each minute
BATCHES_AN_HOUR = 60
# The writer of a batch reads the state so often: to check its place twice, for the watch, and for the merge.
READS = 4


def batch(number: int, files: int) -> Batch:
    first, last = number * RECORDS, (number + 1) * RECORDS - 1
    slices = {partition: Slice(first, last, RECORDS) for partition in range(PARTITIONS)}
    hour = Hour(TOPIC, f"2026-01-{number // 24 % 28 + 1:02d}", number % 24)
    return Batch(
        QUERY,
        number,
        tuple(OffsetRange(TOPIC, partition, first, last + 1) for partition in range(PARTITIONS)),
        tuple(DataFile(data_file(hour, f"{number}-{file}", 0), 100_000, slices) for file in range(files)),
    )


def add(archive: Archive, number: int, files: int) -> None:
    for _ in range(READS):
        archive.summary()
    archive.commit(batch(number, files), lambda _: None)
    archive.condense()


def fill(folder: str, files: int) -> None:
    archive = Archive.at(folder)
    archive.files.make_folder(MANIFESTS)
    for number in range(max(1, files // FILES_A_BATCH)):
        add(archive, number, min(files, FILES_A_BATCH))


def measure(folder: str) -> None:
    archive = Archive.at(folder)
    first = archive.summary().batches[QUERY] + 1
    taken_ms = []
    for number in range(first, first + MEASURED):
        if (number - first) % BATCHES_AN_HOUR == 0:
            archive.load()
        began = time.monotonic()
        add(archive, number, 1)
        taken_ms.append(1_000 * (time.monotonic() - began))
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_000
    print(sum(taken_ms) / MEASURED, max(taken_ms), peak_mb)


def main() -> None:
    folder, files = sys.argv[1], int(sys.argv[2])
    if files:
        fill(folder, files)
        # Another process, so that its memory is not that of filling.
        subprocess.run([sys.executable, "-m", "bench.archive_client", folder, "0"], check=True)
    else:
        measure(folder)


if __name__ == "__main__":
    main()
