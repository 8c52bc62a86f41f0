"""Replication throttles (KIP-73): broker configs that can only be set dynamically, not in a file."""

from ottla.model.config.definition import (
    CLUSTER_WIDE,
    LONG,
    LONG_MAX,
    ConfigDef,
)
from ottla.model.config.validators import (
    AtLeast,
)

CONFIGS = (
    ConfigDef("follower.replication.throttled.rate", LONG, LONG_MAX, AtLeast(0), CLUSTER_WIDE),
    ConfigDef("leader.replication.throttled.rate", LONG, LONG_MAX, AtLeast(0), CLUSTER_WIDE),
    ConfigDef("replica.alter.log.dirs.io.max.bytes.per.second", LONG, LONG_MAX, AtLeast(0), CLUSTER_WIDE),
)
