"""Log compaction: keeps the newest record of each key, and tombstones and markers for a time (KIP-58, KIP-534).

- `cleanable_log.py` measures how dirty a log is.
- `job.py` defines the job that a cleaner process gets, and its results.
- `rewrite.py` reads closed segments and writes cleaned ones.
- `batch_cleaner.py` decides which batches and records to keep; `chunk_changes.py` builds the resulting bytes.
- `swap.py` replaces segments of the log with cleaned ones.

Batches and records are numpy columns. Only cleaner processes (and the simulation) import numpy.
"""
