"""The settings of the group coordinator, from the broker's configuration, and the overrides of single groups."""

from collections.abc import Callable
from dataclasses import dataclass

INT_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class GroupOverrides:
    """The configs of a group resource (KIP-848); None means the broker's value."""

    consumer_session_timeout_ms: int | None = None
    consumer_heartbeat_interval_ms: int | None = None
    consumer_assignment_interval_ms: int | None = None


NO_OVERRIDES = GroupOverrides()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Named like the configs, without `group.` and with underscores."""

    max_size: int = INT_MAX
    initial_rebalance_delay_ms: int = 3000
    min_session_timeout_ms: int = 6000
    max_session_timeout_ms: int = 1_800_000

    consumer_max_size: int = INT_MAX
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5000
    consumer_assignment_interval_ms: int = 1000
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    consumer_migration_policy: str = "bidirectional"  # disabled, downgrade, upgrade, bidirectional
    consumer_regex_refresh_interval_ms: int = 600_000
    rebalance_protocols: tuple[str, ...] = ("classic", "consumer")

    record_bytes_max: int = (
        INT_MAX  # the coordinator cannot write larger records; no limit if it compresses them
    )
    offset_metadata_max_bytes: int = 4096
    offsets_retention_ms: int = 7 * 24 * 3600 * 1000
    offsets_retention_check_interval_ms: int = 600_000

    overrides: Callable[[str], GroupOverrides] = lambda group_id: NO_OVERRIDES
