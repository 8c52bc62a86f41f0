"""The timeouts of a node."""

from dataclasses import dataclass


@dataclass(frozen=True)
class RaftSettings:
    """Kafka's `controller.quorum.*` configs, with their defaults."""

    election_timeout_ms: int = 1_000
    fetch_timeout_ms: int = 2_000
    election_backoff_max_ms: int = 1_000
    retry_backoff_ms: int = 20
