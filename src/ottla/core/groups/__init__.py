"""Consumer groups: one shard of the group coordinator."""
