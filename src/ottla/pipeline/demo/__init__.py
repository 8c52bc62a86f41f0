"""The tour, `ottla demo`: a broker, generated orders, and the pipeline that `ottla pipeline init` writes.

`tour` runs it; the other modules are its parts.
"""
