"""The shell of the metadata quorum: files, flushes and the event loop for `core.raft` and `core.controller`."""
