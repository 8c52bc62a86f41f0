"""The shell of the coordinators: runtimes that run their shards on the partitions of internal topics."""
