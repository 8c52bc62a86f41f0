"""`ottla pipeline replay`: runs corrected logic of a transform over its raw topics again, and shows what differs.

Public: `command` and `comparison`. The other modules are internal.
"""
