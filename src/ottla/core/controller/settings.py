"""The settings of the controller, from the node's configuration."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla.core.controller.configs import ConfigValidator
from ottla.core.controller.image import (
    ELR_VERSION,
    GROUP_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    TRANSACTION_VERSION,
)
from ottla.protocol.metadata_records.codec import METADATA_VERSION_MAX, METADATA_VERSION_MIN
from ottla.protocol.metadata_records.records import FeatureRange

# The feature levels that this release supports, and that a node registers with (KIP-584). A feature that is not listed
# counts as supported at level 0, as in Kafka: so a cluster that has share.version or streams.version refuses the node.
SUPPORTED_FEATURES: Mapping[str, tuple[int, int]] = {
    METADATA_VERSION: (METADATA_VERSION_MIN, METADATA_VERSION_MAX),
    GROUP_VERSION: (0, 1),
    TRANSACTION_VERSION: (0, 2),
    ELR_VERSION: (0, 1),
    KRAFT_VERSION: (0, 1),
}


def supported_feature_ranges() -> tuple[FeatureRange, ...]:
    """The features in a registration."""
    return tuple(
        FeatureRange(name=name, min_supported_version=low, max_supported_version=high)
        for name, (low, high) in sorted(SUPPORTED_FEATURES.items())
    )


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """`session_timeout_ms` is broker.session.timeout.ms. `disconnect_grace_ms` is what is left of a broker's session
    when the connection of its heartbeats is closed, `activation_grace_ms` when another controller becomes active:
    enough for a live broker to connect and send a heartbeat. To fence it by mistake is safe: its records are kept, as
    no unclean election is made before `session_timeout_ms`. `node_id` is the id of this controller.
    """

    validate_configs: ConfigValidator
    num_partitions: int = 1
    default_replication_factor: int = 1
    supported_features: Mapping[str, tuple[int, int]] = field(default_factory=lambda: SUPPORTED_FEATURES)
    node_id: int = 0
    session_timeout_ms: int = 9000
    disconnect_grace_ms: int = 1500
    activation_grace_ms: int = 3000
    min_insync_replicas: int = 1
    unclean_leader_election: bool = False
