"""UpdateFeatures, versions 0 to 2 (KIP-584, KIP-778). v1 upgrade types; v2 no results of single features (KIP-1022).

All features are updated or none, so an error is one of the whole request in all versions.
"""

from collections.abc import Iterable
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
from ottla.core.raft.membership import has_uncommitted_voters
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
    # The level of kraft.version is a record of the quorum. The controller only checks that all nodes support it.
    raises_kraft_version = FeatureUpdate(KRAFT_VERSION, 1, FeatureUpgradeType.UPGRADE) in updates
    results: tuple[tuple[str, ApiError], ...] = ()
    if any(
        update.name == KRAFT_VERSION and update.level < services.quorum.kraft_version for update in updates
    ):
        # As in Kafka: the voters would be static again, and the nodes may have others in their configs.
        refusal = ApiError(ErrorCode.invalid_update_version, "kraft.version cannot be lowered")
        results = ((KRAFT_VERSION, refusal),)
    elif raises_kraft_version:
        results = ((KRAFT_VERSION, await _raise_kraft_version(services, validate_only=True)),)
    if _first_error(results) is None:
        results = await services.controller.submit(UpdateFeatures(updates, validate_only=validate_only))
    if raises_kraft_version and not validate_only and _first_error(results) is None:
        results = (*results, (KRAFT_VERSION, await _raise_kraft_version(services, validate_only=False)))
    first_error = _first_error(results)
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
            for name in dict.fromkeys(name for name, _ in results)
        ),
    )


def _first_error(results: Iterable[tuple[str, ApiError]]) -> ApiError | None:
    return next((error for _, error in results if error.code is not ErrorCode.none), None)


async def _raise_kraft_version(services: NodeServices, *, validate_only: bool) -> ApiError:
    """KIP-853. There is no way back: Kafka has none either."""
    if services.quorum.kraft_version >= 1:
        node = services.quorum.driver.node
        if node.is_leader and not has_uncommitted_voters(node):
            return NO_ERROR
        return ApiError(
            ErrorCode.request_timed_out, "the voters are in the log, but not committed yet. Try again"
        )
    try:
        now_ms = services.env.clock.monotonic_ms()
        await upgrade_quorum(services.quorum, now_ms, validate_only=validate_only)
    except KafkaError as error:
        return ApiError(error.code, error.message)
    return NO_ERROR
