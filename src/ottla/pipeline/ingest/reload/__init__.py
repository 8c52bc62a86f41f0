"""An archive back into topics: the original keys, values, headers and timestamps."""
