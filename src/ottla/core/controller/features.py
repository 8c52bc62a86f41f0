"""Decides changes of the cluster's feature levels (KIP-584)."""

from ottla.core.controller.commands import (
    NO_ERROR,
    ApiError,
    Decision,
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
) -> Decision[tuple[tuple[str, ApiError], ...]]:
    results = tuple(
        (update.name, _refused(image, update, settings) or NO_ERROR) for update in command.updates
    )
    refused = any(error.code is not ErrorCode.none for _, error in results)
    records = tuple(
        FeatureLevelRecord(name=update.name, feature_level=update.level)
        for update in command.updates
        if update.level != image.features.get(update.name, 0)
    )
    return Decision(() if refused or command.validate_only else records, results)


def _refused(image: MetadataImage, update: FeatureUpdate, settings: ControllerSettings) -> ApiError | None:
    current = image.features.get(update.name, 0)
    low, high = settings.supported_features.get(update.name, (0, 0))
    problem = None
    if update.name not in settings.supported_features:
        problem = "The controller does not support this feature."
    elif update.upgrade_type not in FeatureUpgradeType.__members__.values():
        problem = "The controller does not support the given upgrade type."
    elif update.level < 0:
        problem = "A feature version cannot be less than 0."
    elif not low <= update.level <= high and (update.level or update.name == METADATA_VERSION):
        problem = f"Valid versions are from {low} to {high}."
    elif update.level < current and update.upgrade_type == FeatureUpgradeType.UPGRADE:
        problem = (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade."
        )
    elif update.level < current and update.name == METADATA_VERSION:
        problem = "Refusing to perform the requested downgrade because it might delete metadata information."
    elif update.level > current and update.upgrade_type != FeatureUpgradeType.UPGRADE:
        problem = "Can't downgrade to a newer version."
    if problem is None:
        return None
    return ApiError(
        ErrorCode.feature_update_failed if update.level < 0 else ErrorCode.invalid_update_version,
        f"Invalid update version {update.level} for feature {update.name}. {problem}",
    )
