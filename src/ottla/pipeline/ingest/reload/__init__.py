"""Loads an archive back into topics: the original keys, values, headers and timestamps, each record once.

Public: `stage.ArchiveSource`, `settings.ReloadSettings` and `source.ArchiveDataSource`. The other modules are internal.
"""
