"""The stage `[transforms.NAME]`: transforms the records of topics by a Python function on DataFrames or a SQL query.

`stage` runs in a pipeline; `parts` are for the functions of users. The other modules are internal.
"""
