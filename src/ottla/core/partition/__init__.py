"""A partition's leader, in-sync replicas, leader epochs and producer state."""
