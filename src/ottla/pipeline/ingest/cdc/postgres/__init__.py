"""Change capture from PostgreSQL: rows from a consistent snapshot, changes from a logical replication slot.

Public: `stage.PostgresSource`, `settings.PostgresSettings` and `source.PostgresDataSource`. The other modules are
internal.
"""
