"""Transactions across partitions (KIP-98, KIP-890): the pure machine of one shard of the transaction coordinator."""
