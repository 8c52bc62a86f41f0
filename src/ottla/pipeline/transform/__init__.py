"""The stage `[transforms.NAME]`: transforms the records of topics by a Python function on DataFrames or a SQL query.

`stage` is for the runner, `settings` and `dead_letters` also for a replay, `parts` for the functions of users.
"""
