"""Three nodes, Ottla's or Apache Kafka's, never both at a time. Each scenario starts its own cluster."""

from bench.scenarios.cluster import catch_up, failover, partitions, reassignment, restart, start, traffic

SCENARIOS = (
    *start.SCENARIOS,
    *partitions.SCENARIOS,
    *traffic.SCENARIOS,
    *failover.SCENARIOS,
    *catch_up.SCENARIOS,
    *reassignment.SCENARIOS,
    *restart.SCENARIOS,
)
