"""All metrics of a node, by topic of the documentation (docs/metrics.md)."""

from ottla.broker.metrics import broker, cluster, groups, partitions, process, requests, topics
from ottla.metrics import Family, check_families

SECTIONS: dict[str, tuple[Family, ...]] = {
    "Traffic": topics.FAMILIES,
    "Requests": requests.FAMILIES,
    "Partitions of a broker": partitions.FAMILIES,
    "Consumer groups": groups.FAMILIES,
    "Cluster and controllers": cluster.FAMILIES,
    "Metadata quorum": cluster.RAFT_FAMILIES,
    "Broker": broker.FAMILIES,
    "Process": process.FAMILIES,
}
FAMILIES = tuple(family for section in SECTIONS.values() for family in section)
check_families(FAMILIES)


def reference(section: str) -> str:
    """The table of a section, for the documentation."""
    rows = ["| metric | type | labels | meaning |", "| --- | --- | --- | --- |"]
    for name, kind, meaning, labels in SECTIONS[section]:
        rows.append(
            f"| `{name}` | {kind.value} | {', '.join(f'`{label}`' for label in labels)} | {meaning} |"
        )
    return "\n".join(rows)
