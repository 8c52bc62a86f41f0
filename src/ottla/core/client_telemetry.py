"""Which metrics clients are asked to push, and whether a push may come now (KIP-714).

Subscriptions are client-metrics configs: names of metrics, an interval, and which clients they are for. A client is
known by its instance id; the id of what it is subscribed to changes with the configs, so that it asks again.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID
from zlib import crc32

from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.expressions import compiled

DEFAULT_INTERVAL_MS = 300_000
INSTANCES_MAX = 16_384
_ALL = "*"


class ClientLabels(NamedTuple):
    """What a subscription's `match` can look at."""

    client_instance_id: str
    client_id: str
    client_software_name: str
    client_software_version: str
    client_source_address: str
    client_source_port: str


class Subscription(NamedTuple):
    subscription_id: int
    interval_ms: int
    metrics: tuple[str, ...]


class Instance:
    __slots__ = ("is_terminating", "labels", "last_push_ms", "pushed_bytes", "subscription")

    def __init__(self, labels: ClientLabels, subscription: Subscription) -> None:
        self.labels = labels
        self.subscription = subscription
        self.last_push_ms: int | None = None
        self.is_terminating = False
        self.pushed_bytes = 0


class ClientTelemetry:
    def __init__(self, max_push_bytes: int) -> None:
        self.max_push_bytes = max_push_bytes
        self._configs: Mapping[str, Mapping[str, str]] = {}
        self._instances: OrderedDict[UUID, Instance] = OrderedDict()

    def configure(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        """All client-metrics resources, by name. Whose subscription changes by them hears of it with its next push."""
        self._configs = configs
        for instance in self._instances.values():
            instance.subscription = self._subscription_of(instance.labels)

    def subscribe(self, instance_id: UUID, labels: ClientLabels) -> Subscription:
        subscription = self._subscription_of(labels)
        self._instances[instance_id] = Instance(labels, subscription)
        self._instances.move_to_end(instance_id)
        if len(self._instances) > INSTANCES_MAX:
            self._instances.popitem(last=False)
        return subscription

    def push(
        self, instance_id: UUID | None, subscription_id: int, size: int, *, terminating: bool, now_ms: int
    ) -> Instance:
        """Whether metrics of `size` bytes are accepted; KafkaError where not."""
        instance = None if instance_id is None else self._instances.get(instance_id)
        if instance is None:
            raise KafkaError(
                ErrorCode.invalid_request,
                f"client instance {instance_id} has not asked for its subscriptions",
            )
        if instance.is_terminating:
            raise KafkaError(
                ErrorCode.invalid_request, f"client instance {instance_id} has said that it ends"
            )
        if instance.subscription.subscription_id != subscription_id:
            raise KafkaError(
                ErrorCode.unknown_subscription_id,
                f"subscription {subscription_id} is not {instance.subscription.subscription_id}: ask again",
            )
        last_ms = instance.last_push_ms
        if (
            not terminating
            and last_ms is not None
            and now_ms - last_ms < instance.subscription.interval_ms // 2
        ):
            raise KafkaError(
                ErrorCode.throttling_quota_exceeded, f"client instance {instance_id} pushes too often"
            )
        if size > self.max_push_bytes:
            raise KafkaError(
                ErrorCode.telemetry_too_large,
                f"{size} bytes are more than telemetry.max.bytes={self.max_push_bytes}",
            )
        instance.last_push_ms = now_ms
        instance.is_terminating = terminating
        instance.pushed_bytes += size
        return instance

    def _subscription_of(self, labels: ClientLabels) -> Subscription:
        metrics: set[str] = set()
        intervals = []
        for name in sorted(self._configs):
            config = self._configs[name]
            if _matches(config.get("match", ""), labels):
                metrics.update(part.strip() for part in config.get("metrics", "").split(",") if part.strip())
                intervals.append(int(config.get("interval.ms", DEFAULT_INTERVAL_MS)))
        # On the wire "every metric" is one empty prefix.
        chosen = ("",) if _ALL in metrics else tuple(sorted(metrics))
        interval_ms = min(intervals, default=DEFAULT_INTERVAL_MS)
        fingerprint = crc32(repr((chosen, interval_ms)).encode())
        return Subscription(fingerprint & 0x7FFFFFFF, interval_ms, chosen)


def _matches(match: str, labels: ClientLabels) -> bool:
    values = labels._asdict()
    for rule in filter(None, (part.strip() for part in match.split(","))):
        label, _, pattern = rule.partition("=")
        try:
            expression = compiled(pattern.strip(), "The pattern of a client-metrics subscription")
        except KafkaError:  # written by a broker that knows another syntax: nobody is subscribed by it
            return False
        if not expression.fullmatch(values.get(label.strip(), "")):
            return False
    return True
