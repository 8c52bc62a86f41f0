"""GetTelemetrySubscriptions, version 0 (KIP-714): which metrics a client shall push, and how often."""

from datetime import timedelta

from kio.schema.get_telemetry_subscriptions.v0.request import GetTelemetrySubscriptionsRequest
from kio.schema.get_telemetry_subscriptions.v0.response import GetTelemetrySubscriptionsResponse

from ottla.broker.client_labels import labels_of
from ottla.broker.dispatch import RequestContext
from ottla.broker.random_uuid import random_uuid
from ottla.broker.services import BrokerServices
from ottla.model.errors import ErrorCode, KafkaError
from ottla.records.compression import GZIP, LZ4, SNAPPY, ZSTD


def handle(
    services: BrokerServices, context: RequestContext, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    instance_id = request.client_instance_id or random_uuid(services.env)
    telemetry, labels = services.telemetry, labels_of(context, instance_id)
    try:
        subscription = telemetry.subscribe(instance_id, labels, services.env.clock.monotonic_ms())
    except KafkaError as error:
        return _rejection(error.code)
    return GetTelemetrySubscriptionsResponse(
        throttle_time=timedelta(),
        error_code=ErrorCode.none,
        client_instance_id=instance_id,
        subscription_id=subscription.subscription_id,
        accepted_compression_types=(ZSTD, LZ4, GZIP, SNAPPY),
        push_interval=timedelta(milliseconds=subscription.interval_ms),
        telemetry_max_bytes=telemetry.max_push_bytes,
        delta_temporality=True,
        requested_metrics=subscription.metrics,
    )


def _rejection(code: ErrorCode) -> GetTelemetrySubscriptionsResponse:
    return GetTelemetrySubscriptionsResponse(
        throttle_time=timedelta(),
        error_code=code,
        client_instance_id=None,
        subscription_id=0,
        accepted_compression_types=(),
        push_interval=timedelta(),
        telemetry_max_bytes=0,
        delta_temporality=False,
        requested_metrics=(),
    )
