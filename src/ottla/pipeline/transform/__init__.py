"""Transforms: raw topics into transformed events by a Python function on DataFrames or a SQL query."""
