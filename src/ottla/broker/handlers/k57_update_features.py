"""UpdateFeatures, versions 0 to 2 (KIP-584, KIP-778). v1 upgrade types; v2 one error for the whole request."""

from datetime import timedelta
from typing import Any

from kio.schema.update_features.v2.request import UpdateFeaturesRequest
from kio.schema.update_features.v2.response import UpdateFeaturesResponse

from ottla.broker.dispatch import RequestContext
from ottla.broker.services import NodeServices
from ottla.core.controller.commands import FeatureUpdate, FeatureUpgradeType, UpdateFeatures
from ottla.model.errors import ErrorCode


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
) -> UpdateFeaturesResponse:
    updates = tuple(
        FeatureUpdate(update.feature, update.max_version_level, update.upgrade_type)
        for update in request.feature_updates
    )
    results = await services.controller.submit(UpdateFeatures(updates, validate_only=request.validate_only))
    first_error = next((error for _, error in results if error.code is not ErrorCode.none), None)
    return UpdateFeaturesResponse(
        throttle_time=timedelta(),
        error_code=ErrorCode.none if first_error is None else first_error.code,
        error_message=None if first_error is None else first_error.message,
    )
