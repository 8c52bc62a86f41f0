"""The settings of the quorum, from the node's configs."""

from dataclasses import dataclass

from ottla.core.raft.settings import RaftSettings
from ottla.model.config import BrokerConfig

DAY_MS = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class QuorumSettings:
    """With Kafka's defaults. An interval of 0 disables it; a retention of -1 is unlimited."""

    snapshot_bytes: int = 20 << 20
    snapshot_interval_ms: int = 60 * 60 * 1000
    retention_bytes: int = 100 << 20
    retention_ms: int = 7 * DAY_MS
    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * DAY_MS
    file_delete_delay_ms: int = 60_000
    no_op_interval_ms: int = 500
    leader_balance_interval_ms: int = 300_000
    leader_election_interval_ms: int = 300_000

    @classmethod
    def from_config(cls, config: BrokerConfig) -> "QuorumSettings":
        return cls(
            snapshot_bytes=config.get_int("metadata.log.max.record.bytes.between.snapshots"),
            snapshot_interval_ms=config.get_int("metadata.log.max.snapshot.interval.ms"),
            retention_bytes=config.get_int("metadata.max.retention.bytes"),
            retention_ms=config.get_int("metadata.max.retention.ms"),
            # The internal config is for tests: it may be smaller than users may set.
            segment_bytes=config.get_int(
                "internal.metadata.log.segment.bytes"
                if config.is_set("internal.metadata.log.segment.bytes")
                else "metadata.log.segment.bytes"
            ),
            segment_ms=config.get_int("metadata.log.segment.ms"),
            file_delete_delay_ms=config.get_int("internal.metadata.delete.delay.millis"),
            no_op_interval_ms=config.get_int("metadata.max.idle.interval.ms"),
            leader_balance_interval_ms=(
                config.get_int("leader.imbalance.check.interval.seconds") * 1000
                if config.get_bool("auto.leader.rebalance.enable")
                else 0
            ),
            leader_election_interval_ms=config.get_int("unclean.leader.election.interval.ms"),
        )


def raft_settings(config: BrokerConfig) -> RaftSettings:
    return RaftSettings(
        election_timeout_ms=config.get_int("controller.quorum.election.timeout.ms"),
        fetch_timeout_ms=config.get_int("controller.quorum.fetch.timeout.ms"),
        election_backoff_max_ms=config.get_int("controller.quorum.election.backoff.max.ms"),
        retry_backoff_ms=config.get_int("controller.quorum.retry.backoff.ms"),
    )
