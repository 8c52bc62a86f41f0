"""The shell of the coordinators: shards on the partitions of internal topics."""
