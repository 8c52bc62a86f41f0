"""UpdateFeatures, versions 0 to 2 (KIP-584, KIP-778). v1 upgrade types; v2 no results of single features (KIP-1022).

All features are updated or none, so an error is one of the whole request in all versions.
"""

from datetime import timedelta
from typing import Any

from kio.schema.update_features.v1.response import UpdatableFeatureResult
from kio.schema.update_features.v1.response import UpdateFeaturesResponse as UpdateFeaturesResponseV1
from kio.schema.update_features.v2.request import UpdateFeaturesRequest
from kio.schema.update_features.v2.response import UpdateFeaturesResponse

from ottla.broker.dispatch import RequestContext
from ottla.broker.quorum.kraft_upgrade import upgrade_quorum
from ottla.broker.services import NodeServices
from ottla.core.controller.commands import (
    NO_ERROR,
    ApiError,
    FeatureUpdate,
    FeatureUpgradeType,
    UpdateFeatures,
)
from ottla.core.controller.image import KRAFT_VERSION
from ottla.model.errors import ErrorCode, KafkaError

_FIRST_WITHOUT_RESULTS = 2
_ALL_FAILED = "The update failed for all features since the following feature had an error: "


def lift(request: UpdateFeaturesRequest, as_sent: Any, version: int) -> UpdateFeaturesRequest:
    if version >= 1:
        return request
    updates = tuple(
        type(new)(
            feature=new.feature,
            max_version_level=new.max_version_level,
            upgrade_type=(
                FeatureUpgradeType.SAFE_DOWNGRADE if old.allow_downgrade else FeatureUpgradeType.UPGRADE
            ),
        )
        for new, old in zip(request.feature_updates, as_sent.feature_updates, strict=True)
    )
    return UpdateFeaturesRequest(timeout=request.timeout, feature_updates=updates, validate_only=False)


async def handle(
    services: NodeServices, context: RequestContext, request: UpdateFeaturesRequest
) -> UpdateFeaturesResponse | UpdateFeaturesResponseV1:
    updates = tuple(
        FeatureUpdate(update.feature, update.max_version_level, update.upgrade_type)
        for update in request.feature_updates
    )
    validate_only = request.validate_only
    # The level of kraft.version is a record of the quorum, not of the metadata.
    raises_kraft_version = FeatureUpdate(KRAFT_VERSION, 1, FeatureUpgradeType.UPGRADE) in updates
    of_metadata = tuple(
        update for update in updates if not (update.name == KRAFT_VERSION and raises_kraft_version)
    )
    results = await services.controller.submit(UpdateFeatures(of_metadata, validate_only=validate_only))
    if raises_kraft_version:
        results = (*results, (KRAFT_VERSION, await _raise_kraft_version(services, validate_only)))
    first_error = next((error for _, error in results if error.code is not ErrorCode.none), None)
    if first_error is not None:
        # A request that the controller could not decide is not the fault of a feature.
        is_retried = first_error.code is ErrorCode.not_controller
        message = first_error.message if is_retried else f"{_ALL_FAILED}{first_error.message}"
        return UpdateFeaturesResponse(
            throttle_time=timedelta(), error_code=first_error.code, error_message=message
        )
    if context.version >= _FIRST_WITHOUT_RESULTS:
        return UpdateFeaturesResponse(
            throttle_time=timedelta(), error_code=ErrorCode.none, error_message=None
        )
    return UpdateFeaturesResponseV1(
        throttle_time=timedelta(),
        error_code=ErrorCode.none,
        error_message=None,
        results=tuple(
            UpdatableFeatureResult(feature=name, error_code=ErrorCode.none, error_message=None)
            for name, _ in results
        ),
    )


async def _raise_kraft_version(services: NodeServices, validate_only: bool) -> ApiError:
    """KIP-853. There is no way back: Kafka has none either."""
    if services.quorum.kraft_version >= 1:
        return NO_ERROR
    try:
        now_ms = services.env.clock.monotonic_ms()
        await upgrade_quorum(services.quorum, now_ms, validate_only=validate_only)
    except KafkaError as error:
        return ApiError(error.code, error.message)
    return NO_ERROR
