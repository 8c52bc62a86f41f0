"""The settings of the controller, from the node's configuration."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla.core.controller.configs import ConfigValidator
from ottla.core.controller.image import GROUP_VERSION, METADATA_VERSION, TRANSACTION_VERSION
from ottla.protocol.metadata_records.codec import METADATA_VERSION_MAX, METADATA_VERSION_MIN

# The feature levels that this release supports, and that a node registers with (KIP-584).
SUPPORTED_FEATURES: Mapping[str, tuple[int, int]] = {
    METADATA_VERSION: (METADATA_VERSION_MIN, METADATA_VERSION_MAX),
    GROUP_VERSION: (0, 1),
    TRANSACTION_VERSION: (0, 2),
}


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    validate_configs: ConfigValidator
    num_partitions: int = 1
    default_replication_factor: int = 1
    supported_features: Mapping[str, tuple[int, int]] = field(default_factory=lambda: SUPPORTED_FEATURES)
