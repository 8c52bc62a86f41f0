"""Change data capture: a consistent snapshot of a database's rows, then every change, as records in a topic.

`mysql` captures MariaDB and MySQL, `postgres` captures PostgreSQL; neither imports the other. The modules beside them
are what both need: Debezium's envelope, the state beside the checkpoint, retries, and checks before the start.
"""
