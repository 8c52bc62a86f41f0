"""Change capture: what happens to a database's rows as records, from a consistent snapshot on."""
