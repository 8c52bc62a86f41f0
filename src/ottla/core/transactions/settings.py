"""The settings of the transaction coordinator, from the broker's configuration and the cluster's features."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSettings:
    max_timeout_ms: int = 900_000  # transaction.max.timeout.ms
    transactional_id_expiration_ms: int = 7 * 24 * 3600 * 1000
    remove_expired_interval_ms: int = 3_600_000  # transaction.remove.expired.transaction.cleanup.interval.ms
    two_phase_commit_enabled: bool = False  # transaction.two.phase.commit.enable (KIP-939)
    transaction_version: int = 2  # the level of the feature transaction.version
