"""Decides changes of the cluster's feature levels (KIP-584)."""

from collections.abc import Iterator

from ottla.core.controller.commands import (
    NO_ERROR,
    ApiError,
    ControllerDecision,
    FeatureUpdate,
    FeatureUpgradeType,
    UpdateFeatures,
)
from ottla.core.controller.configs import MIN_INSYNC_REPLICAS, clear_elr_records
from ottla.core.controller.image import ELR_VERSION, KRAFT_VERSION, METADATA_VERSION, MetadataImage
from ottla.core.controller.settings import ControllerSettings
from ottla.model.config.definition import ResourceType
from ottla.model.errors import ErrorCode
from ottla.protocol.metadata_records.records import (
    ConfigRecord,
    FeatureLevelRecord,
    FeatureRange,
    MetadataRecord,
)

_DISABLED = (0, 0)  # of a node that does not name the feature
# The levels of metadata.version that added fields or types to metadata records: 3.7-IV2, 4.0-IV1 and 4.3-IV0. A log may
# have such records from then on, so it is not lowered below them (KIP-778). The other levels only enable requests.
_CHANGED_RECORDS = (17, 23, 30)
_UNSAFE = "Unsafe metadata downgrade is not supported in this version."
_MIGHT_DELETE = "Refusing to perform the requested downgrade because it might delete metadata information."


def decide_update_features(
    image: MetadataImage, command: UpdateFeatures, settings: ControllerSettings
) -> ControllerDecision[tuple[tuple[str, ApiError], ...]]:
    results = tuple(
        (update.name, _update_error(image, update, settings) or NO_ERROR) for update in command.updates
    )
    is_rejected = any(error.code is not ErrorCode.none for _, error in results)
    if is_rejected or command.validate_only:
        return ControllerDecision((), results)
    records: list[MetadataRecord] = []
    for update in command.updates:
        current = image.features.get(update.name, 0)
        # The level of kraft.version is a record of the quorum (KIP-853).
        if update.level != current and update.name != KRAFT_VERSION:
            records.append(FeatureLevelRecord(name=update.name, feature_level=update.level))
        if update.name == ELR_VERSION and update.level > current:
            configs = list(_elr_configs(image, settings))
            records += [*configs, *clear_elr_records(image, configs)]
    return ControllerDecision(tuple(records), results)


def _update_error(
    image: MetadataImage, update: FeatureUpdate, settings: ControllerSettings
) -> ApiError | None:
    current = image.features.get(update.name, 0)
    reason = None
    if update.upgrade_type not in FeatureUpgradeType.__members__.values():
        reason = "The controller does not support the given upgrade type."
    elif update.level < 0:
        reason = "A feature version cannot be less than 0."
    elif (unsupported := _reason_not_supported(image, update, settings)) is not None:
        reason = unsupported
    elif update.level < current and update.upgrade_type == FeatureUpgradeType.UPGRADE:
        reason = (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade."
        )
    elif update.name == METADATA_VERSION and any(update.level < each <= current for each in _CHANGED_RECORDS):
        is_unsafe = update.upgrade_type == FeatureUpgradeType.UNSAFE_DOWNGRADE
        reason = _UNSAFE if is_unsafe else _MIGHT_DELETE
    elif update.level > current and update.upgrade_type != FeatureUpgradeType.UPGRADE:
        reason = "Can't downgrade to a newer version."
    if reason is None:
        return None
    return ApiError(
        ErrorCode.feature_update_failed if update.level < 0 else ErrorCode.invalid_update_version,
        f"Invalid update version {update.level} for feature {update.name}. {reason}",
    )


def _reason_not_supported(
    image: MetadataImage, update: FeatureUpdate, settings: ControllerSettings
) -> str | None:
    for node, (low, high) in _supported_ranges(image, update.name, settings):
        if not low <= update.level <= high:
            if high == 0:
                return f"{node} does not support this feature."
            return f"{node} only supports versions {low if low == high else f'{low}-{high}'}"
    # Without this, a name that no node knows could be set to 0.
    return None if update.name in settings.supported_features else "No node supports this feature."


def _supported_ranges(
    image: MetadataImage, name: str, settings: ControllerSettings
) -> Iterator[tuple[str, tuple[int, int]]]:
    """The versions that each node supports, the active controller first."""
    yield f"Local controller {settings.node_id}", settings.supported_features.get(name, _DISABLED)
    for broker in image.brokers.values():
        yield f"Broker {broker.broker_id}", _range_in(broker.features, name)
    for controller in image.controllers.values():
        if controller.controller_id != settings.node_id:
            yield f"Controller {controller.controller_id}", _range_in(controller.features, name)


def _range_in(features: tuple[FeatureRange, ...], name: str) -> tuple[int, int]:
    return next(
        (
            (feature.min_supported_version, feature.max_supported_version)
            for feature in features
            if feature.name == name
        ),
        _DISABLED,
    )


def _elr_configs(image: MetadataImage, settings: ControllerSettings) -> Iterator[ConfigRecord]:
    """KIP-966: eligibility depends on min.insync.replicas, so all brokers must agree on its default."""
    for resource, configs in image.configs.items():
        if resource.type == ResourceType.BROKER and resource.name and MIN_INSYNC_REPLICAS in configs:
            yield ConfigRecord(
                resource_type=resource.type,
                resource_name=resource.name,
                name=MIN_INSYNC_REPLICAS,
                value=None,
            )
    if MIN_INSYNC_REPLICAS not in image.config(ResourceType.BROKER, ""):
        yield ConfigRecord(
            resource_type=ResourceType.BROKER,
            resource_name="",
            name=MIN_INSYNC_REPLICAS,
            value=str(settings.min_insync_replicas),
        )
