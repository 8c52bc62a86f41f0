"""The metadata quorum's shell: files, flushes and the event loop around `core.raft` and `core.controller`."""
