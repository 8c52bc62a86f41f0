"""Committed offsets: commits, fetches, expiry, and those that wait for their transaction."""
