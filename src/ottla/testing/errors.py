"""The errors of this package that tests may want to catch."""


class BrokerStoppedError(Exception):
    """The broker or node does not run: it was not started, it was stopped, or it failed."""
