"""Replication: followers copy their partitions from the leaders, and leaders propose the in-sync replicas.

`replica_fetchers` follows the roles of the hosted partitions, `replica_fetcher` copies from one broker, `isr_changes`
tells the controller which replicas are in sync.
"""
