"""Consumer groups: the pure machine of one shard of the group coordinator."""
