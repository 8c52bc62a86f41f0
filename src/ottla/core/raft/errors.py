"""Exceptions of a node."""


class NotLeader(Exception):
    """A node that is not the leader was asked to append records."""


class DivergedBelowCommit(Exception):
    """The leader asks a follower to truncate committed records: a voter has lost its log, or clusters were mixed up."""
