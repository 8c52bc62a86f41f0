"""All metrics of a node, by topic of the documentation (docs/metrics.md)."""

from ottla.broker.metrics import (
    broker,
    clients,
    cluster,
    disks,
    groups,
    partitions,
    process,
    requests,
    topics,
)
from ottla.metrics import Family, check_families, reference_table

SECTIONS: dict[str, tuple[Family, ...]] = {
    "Traffic": topics.FAMILIES,
    "Requests": requests.FAMILIES,
    "Partitions of a broker": partitions.FAMILIES,
    "Consumer groups": groups.FAMILIES,
    "Cluster and controllers": cluster.FAMILIES,
    "Metadata quorum": cluster.RAFT_FAMILIES,
    "Broker": broker.FAMILIES,
    "Disks": disks.FAMILIES,
    "Process": process.FAMILIES,
    "Client metrics": clients.FAMILIES,
}
FAMILIES = tuple(family for section in SECTIONS.values() for family in section)
check_families(FAMILIES)


def reference(section: str) -> str:
    """The table of a section, for the documentation."""
    return reference_table(SECTIONS[section])
