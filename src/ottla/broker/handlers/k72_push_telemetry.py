"""PushTelemetry, version 0 (KIP-714): a client's metrics, in OpenTelemetry's encoding."""

import logging
from datetime import timedelta
from functools import partial

from kio.schema.push_telemetry.v0.request import PushTelemetryRequest
from kio.schema.push_telemetry.v0.response import PushTelemetryResponse

from ottla.broker.client_labels import labels_of
from ottla.broker.dispatch import RequestContext
from ottla.broker.services import BrokerServices
from ottla.model.errors import ErrorCode, KafkaError
from ottla.records.compression import decompress

logger = logging.getLogger("ottla.telemetry")


async def handle(
    services: BrokerServices, context: RequestContext, request: PushTelemetryRequest
) -> PushTelemetryResponse:
    code = ErrorCode.none
    try:
        await _receive(services, context, request)
    except KafkaError as error:
        code = error.code
    return PushTelemetryResponse(throttle_time=timedelta(), error_code=code)


async def _receive(services: BrokerServices, context: RequestContext, request: PushTelemetryRequest) -> None:
    telemetry = services.telemetry
    instance = telemetry.push(
        request.client_instance_id,
        labels_of(context, request.client_instance_id),
        request.subscription_id,
        request.compression_type,
        len(request.metrics),
        terminating=request.terminating,
        now_ms=services.env.clock.monotonic_ms(),
    )
    unpack = partial(decompress, request.compression_type, request.metrics, telemetry.max_push_bytes)
    try:
        metrics = await services.telemetry_thread.run(unpack)
    except KafkaError as error:
        raise KafkaError(ErrorCode.invalid_record, error.message) from error
    logger.debug(
        "%d bytes of metrics from client instance %s (%s)",
        len(metrics), request.client_instance_id, context.client_id,
    )  # fmt: skip
    if services.client_metrics is not None:
        await services.client_metrics.receive(instance, metrics)
