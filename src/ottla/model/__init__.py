"""Types without dependencies: ids, errors, configs. The lowest layer."""
