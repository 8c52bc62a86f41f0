"""What a node raises."""


class NotLeader(Exception):
    """A proposal reached a node that does not lead."""


class DivergedBelowCommit(Exception):
    """The leader asks to truncate what is committed: a voter has lost its log, or two clusters have met."""
