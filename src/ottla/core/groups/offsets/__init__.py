"""Committed offsets: commits, fetches, expiry, and offsets in open transactions."""
