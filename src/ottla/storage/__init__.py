"""Logs on disk, in Kafka's file formats.

- Data directories: `log_dirs` (all directories and their logs), `log_dir` (one directory), `meta_properties`,
  `offset_checkpoints`, `replica_move`, `future_folders`, `deletion`.
- A log: `log` (the interface of a partition's log), `log_loader` (opening and recovery), `segments`, `segment`,
  `flush`, `producer_state`, `producer_snapshots`, `timestamp_search`.
- Files: `batch_scan` (batches), `offset_index`, `time_index`, `txn_index`, `checkpoints`, `file_names`, `dump`.
- Compaction: `cleaner`.

The broker uses `LogDirs`, `Log`, the errors, and of `cleaner` the jobs and the swap.
"""
