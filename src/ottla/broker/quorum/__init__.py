"""The shell of the metadata quorum, for `core.raft` and `core.controller`.

`quorum` has this node's part in it, made of a raft driver and a loader on every node, and a controller runtime on the
leader. The other modules are its files: the log, its snapshots, the state of the voter.
"""
