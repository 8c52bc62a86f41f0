"""Who gets which partitions: the assignors of the consumer protocol."""
