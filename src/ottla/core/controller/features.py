"""Decides changes of the cluster's feature levels (KIP-584)."""

from ottla.core.controller.commands import (
    NO_ERROR,
    ApiError,
    ControllerDecision,
    FeatureUpdate,
    FeatureUpgradeType,
    UpdateFeatures,
)
from ottla.core.controller.image import METADATA_VERSION, MetadataImage
from ottla.core.controller.settings import ControllerSettings
from ottla.model.errors import ErrorCode
from ottla.protocol.metadata_records.records import FeatureLevelRecord


def decide_update_features(
    image: MetadataImage, command: UpdateFeatures, settings: ControllerSettings
) -> ControllerDecision[tuple[tuple[str, ApiError], ...]]:
    results = tuple(
        (update.name, _update_error(image, update, settings) or NO_ERROR) for update in command.updates
    )
    is_rejected = any(error.code is not ErrorCode.none for _, error in results)
    records = tuple(
        FeatureLevelRecord(name=update.name, feature_level=update.level)
        for update in command.updates
        if update.level != image.features.get(update.name, 0)
    )
    return ControllerDecision(() if is_rejected or command.validate_only else records, results)


def _update_error(
    image: MetadataImage, update: FeatureUpdate, settings: ControllerSettings
) -> ApiError | None:
    current = image.features.get(update.name, 0)
    low, high = settings.supported_features.get(update.name, (0, 0))
    reason = None
    if update.name not in settings.supported_features:
        reason = "The controller does not support this feature."
    elif update.upgrade_type not in FeatureUpgradeType.__members__.values():
        reason = "The controller does not support the given upgrade type."
    elif update.level < 0:
        reason = "A feature version cannot be less than 0."
    elif not low <= update.level <= high and (update.level or update.name == METADATA_VERSION):
        reason = f"Valid versions are from {low} to {high}."
    elif update.level < current and update.upgrade_type == FeatureUpgradeType.UPGRADE:
        reason = (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade."
        )
    elif update.level < current and update.name == METADATA_VERSION:
        reason = "Refusing to perform the requested downgrade because it might delete metadata information."
    elif update.level > current and update.upgrade_type != FeatureUpgradeType.UPGRADE:
        reason = "Can't downgrade to a newer version."
    if reason is None:
        return None
    return ApiError(
        ErrorCode.feature_update_failed if update.level < 0 else ErrorCode.invalid_update_version,
        f"Invalid update version {update.level} for feature {update.name}. {reason}",
    )
