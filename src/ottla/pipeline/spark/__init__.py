"""The connector `format("ottla")`: topics as DataFrames and streams, and DataFrames into topics, also exactly once."""
