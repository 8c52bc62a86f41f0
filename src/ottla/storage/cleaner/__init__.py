"""Log compaction: of each key the newest record is kept, tombstones and markers for their time (KIP-58, KIP-534).

`job.py` says what is to be cleaned and with which result, `cleaning.py` decides about batches and records, `changes.py`
makes the bytes that come of it, `rewrite.py` reads closed segments and writes cleaned ones, `swap.py` puts those in
their place. Batches and records are looked at in columns, with numpy: only worker processes (and the simulation) import
that.
"""
