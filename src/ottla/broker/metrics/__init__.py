"""The metrics of a node, and the HTTP endpoint that serves them. Loaded only if `ottla.metrics.address` is set."""
