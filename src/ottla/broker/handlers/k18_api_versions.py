"""ApiVersions, versions 0 to 4.

v3 flexible, the client's software (KIP-511) and the broker's features (KIP-584); v4 features whose lowest version is 0.
The response header is always v0, and the response to an unknown version is v0 with UNSUPPORTED_VERSION.
"""

import re
from collections.abc import Iterable
from datetime import timedelta

from kio.schema.api_versions.v4.request import ApiVersionsRequest
from kio.schema.api_versions.v4.response import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

from ottla.broker.dispatch import RequestContext
from ottla.broker.services import NodeServices
from ottla.core.controller.image import KRAFT_VERSION
from ottla.core.controller.settings import SUPPORTED_FEATURES
from ottla.model.config import takes_client_metrics
from ottla.model.errors import ErrorCode
from ottla.protocol.api_keys import APIS, ApiKey, apis_of

# KAFKA-18659: as in Kafka, versions 0 to 2 of Produce are offered but not served. Older versions of librdkafka compress
# only if version 0 is offered.
_PRODUCE_MIN_VERSION_OFFERED = 0
_TELEMETRY = (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY)
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(
    services: NodeServices, context: RequestContext, request: ApiVersionsRequest
) -> ApiVersionsResponse:
    if context.version >= 3:
        software = (request.client_software_name, request.client_software_version)
        if not all(_SOFTWARE.fullmatch(part) for part in software):
            return _response(services, context, ErrorCode.invalid_request, ())
        context.connection.client_software = software
    # As in Kafka, telemetry is offered only if somebody receives it: else every client would push for nothing.
    wants_telemetry = takes_client_metrics(services.config)
    served = apis_of(context.listener_kind)
    return _response(
        services, context, ErrorCode.none, [key for key in served if wants_telemetry or key not in _TELEMETRY]
    )


def lower(response: ApiVersionsResponse, version: int) -> ApiVersionsResponse:
    # Clients before v4 reject a supported feature whose lowest version is 0 (KAFKA-17011).
    if version >= 4:
        return response
    return ApiVersionsResponse(
        error_code=response.error_code,
        api_keys=response.api_keys,
        throttle_time=response.throttle_time,
        supported_features=tuple(f for f in response.supported_features if f.min_version > 0),
        finalized_features_epoch=response.finalized_features_epoch,
        finalized_features=response.finalized_features,
    )


def unsupported_version(services: NodeServices, context: RequestContext) -> ApiVersionsResponse:
    """Has the versions of this API, from which the client chooses again (KIP-511)."""
    return _response(services, context, ErrorCode.unsupported_version, (ApiKey.API_VERSIONS,))


def _response(
    services: NodeServices, context: RequestContext, error: ErrorCode, apis: Iterable[ApiKey]
) -> ApiVersionsResponse:
    unstable = services.config.get_bool("unstable.api.versions.enable")
    return ApiVersionsResponse(
        error_code=error,
        api_keys=tuple(
            ApiVersion(
                api_key=key.value,
                min_version=(
                    _PRODUCE_MIN_VERSION_OFFERED if key is ApiKey.PRODUCE else APIS[key].min_version
                ),
                max_version=APIS[key].latest_enabled(unstable=unstable),
            )
            for key in apis
        ),
        throttle_time=timedelta(),
        supported_features=tuple(
            SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, (low, high) in sorted(SUPPORTED_FEATURES.items())
        ),
        finalized_features_epoch=services.metadata.image.offset,
        finalized_features=tuple(
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in sorted(_finalized_features(services).items())
        ),
    )


def _finalized_features(services: NodeServices) -> dict[str, int]:
    """With kraft.version, whose level is in the control records of the log (KIP-853); as in Kafka, only above 0."""
    level = services.quorum.kraft_version
    return {**services.metadata.image.features, **({KRAFT_VERSION: level} if level > 0 else {})}
