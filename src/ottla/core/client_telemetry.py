"""Which metrics clients are asked to push, and whether a push is accepted (KIP-714).

Subscriptions are client-metrics configs: names of metrics, an interval, and which clients they are for. Each client
has an instance id. The id of its subscription changes with the configs, so that the client asks for it again.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID
from zlib import crc32

from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.regex import compile_regex

DEFAULT_INTERVAL_MS = 300_000
_INSTANCES_MAX = 16_384
_ALL = "*"


class ClientLabels(NamedTuple):
    """The labels that a subscription's `match` can select by."""

    client_instance_id: str
    client_id: str
    client_software_name: str
    client_software_version: str
    client_source_address: str
    client_source_port: str


class TelemetrySubscription(NamedTuple):
    subscription_id: int
    interval_ms: int
    metrics: tuple[str, ...]


class ClientInstance:
    __slots__ = ("is_terminating", "labels", "last_push_ms", "pushed_bytes", "subscription")

    def __init__(self, labels: ClientLabels, subscription: TelemetrySubscription) -> None:
        self.labels = labels
        self.subscription = subscription
        self.last_push_ms: int | None = None
        self.is_terminating = False
        self.pushed_bytes = 0


class ClientTelemetry:
    def __init__(self, max_push_bytes: int) -> None:
        self.max_push_bytes = max_push_bytes
        self._configs: Mapping[str, Mapping[str, str]] = {}
        self._instances: OrderedDict[UUID, ClientInstance] = OrderedDict()

    def configure(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        """Sets all client-metrics resources, by name. Clients learn of changes at their next push."""
        self._configs = configs
        for instance in self._instances.values():
            instance.subscription = self._subscription_of(instance.labels)

    def subscribe(self, instance_id: UUID, labels: ClientLabels) -> TelemetrySubscription:
        subscription = self._subscription_of(labels)
        self._instances[instance_id] = ClientInstance(labels, subscription)
        self._instances.move_to_end(instance_id)
        if len(self._instances) > _INSTANCES_MAX:
            self._instances.popitem(last=False)
        return subscription

    def push(
        self, instance_id: UUID | None, subscription_id: int, size: int, *, terminating: bool, now_ms: int
    ) -> ClientInstance:
        """Accepts a push of `size` bytes. Raises KafkaError if it is rejected."""
        instance = None if instance_id is None else self._instances.get(instance_id)
        if instance is None:
            raise KafkaError(
                ErrorCode.invalid_request,
                f"client instance {instance_id} has not requested its subscriptions",
            )
        if instance.is_terminating:
            raise KafkaError(
                ErrorCode.invalid_request,
                f"client instance {instance_id} has sent its terminating push already",
            )
        if instance.subscription.subscription_id != subscription_id:
            raise KafkaError(
                ErrorCode.unknown_subscription_id,
                f"the subscription is {instance.subscription.subscription_id}, not {subscription_id}: request it again",
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

    def _subscription_of(self, labels: ClientLabels) -> TelemetrySubscription:
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
        return TelemetrySubscription(fingerprint & 0x7FFFFFFF, interval_ms, chosen)


def _matches(match: str, labels: ClientLabels) -> bool:
    values = labels._asdict()
    for rule in filter(None, (part.strip() for part in match.split(","))):
        label, _, pattern = rule.partition("=")
        try:
            expression = compile_regex(pattern.strip(), "The pattern of a client-metrics subscription")
        except KafkaError:  # written by a broker with another regex syntax: it matches no client
            return False
        if not expression.fullmatch(values.get(label.strip(), "")):
            return False
    return True
