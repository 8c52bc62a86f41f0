"""Groups that change between the classic and the consumer protocol while they run (KIP-848)."""
