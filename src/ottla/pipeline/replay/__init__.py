"""`ottla pipeline replay`: runs corrected logic of a transform over its raw topics again, and shows what differs.

`command` runs it, `comparison` shows the differences, `planning` finds the archives of a pipeline. The other modules
are internal.
"""
