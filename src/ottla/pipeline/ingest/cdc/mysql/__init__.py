"""Change capture from MariaDB and MySQL: rows from a consistent snapshot, changes from the binlog.

Public: `stage.MySqlSource`, `settings.MySqlSettings` and `source.MySqlDataSource`. The package `binlog` reads and
decodes the binlog; the other modules are internal.
"""
