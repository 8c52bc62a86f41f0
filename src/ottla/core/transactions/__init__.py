"""Transactions across partitions (KIP-98, KIP-890): one shard of the transaction coordinator."""
