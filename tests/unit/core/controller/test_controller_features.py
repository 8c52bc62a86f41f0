"""Feature levels can be raised up to the levels that this release supports (KIP-584)."""

import uuid
from dataclasses import replace

import pytest
from tests.unit.core.controller.controller_cluster import SETTINGS, Cluster

from ottla.core.controller.commands import (
    NO_ERROR,
    FeatureUpdate,
    FeatureUpgradeType,
    RegisterController,
    UnregisterBroker,
    UpdateFeatures,
)
from ottla.core.controller.image import (
    ELR_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    ConfigResource,
    ResourceType,
)
from ottla.core.controller.settings import ControllerSettings
from ottla.model.errors import ErrorCode
from ottla.protocol.metadata_records.records import ConfigRecord, FeatureLevelRecord, FeatureRange

FEATURES = {METADATA_VERSION: (17, 30), "group.version": (0, 1)}


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(settings=ControllerSettings(SETTINGS.validate_configs, supported_features=FEATURES))
    cluster.write(FeatureLevelRecord(name=METADATA_VERSION, feature_level=25))
    return cluster


def test_a_level_is_raised(cluster: Cluster) -> None:
    updates = (FeatureUpdate(METADATA_VERSION, 30), FeatureUpdate("group.version", 1))
    assert cluster.submit(UpdateFeatures(updates)) == (
        (METADATA_VERSION, NO_ERROR),
        ("group.version", NO_ERROR),
    )
    assert cluster.image.features == {METADATA_VERSION: 30, "group.version": 1}


def test_level_0_disables_a_feature(cluster: Cluster) -> None:
    cluster.submit(UpdateFeatures((FeatureUpdate("group.version", 1),)))
    cluster.submit(UpdateFeatures((FeatureUpdate("group.version", 0, FeatureUpgradeType.SAFE_DOWNGRADE),)))
    assert cluster.image.features == {METADATA_VERSION: 25}


def test_validate_only_changes_nothing(cluster: Cluster) -> None:
    before = cluster.image
    cluster.submit(UpdateFeatures((FeatureUpdate(METADATA_VERSION, 30),), validate_only=True))
    assert cluster.image is before


@pytest.mark.parametrize(
    ("update", "reason"),
    [
        (FeatureUpdate(METADATA_VERSION, 31), "Local controller 0 only supports versions 17-30"),
        (FeatureUpdate(METADATA_VERSION, 0), "Local controller 0 only supports versions 17-30"),
        (FeatureUpdate("group.version", 2), "Local controller 0 only supports versions 0-1"),
        (FeatureUpdate("nope", 1), "Local controller 0 does not support this feature."),
        (FeatureUpdate("nope", 0), "No node supports this feature."),
        (FeatureUpdate("group.version", -1), "A feature version cannot be less than 0."),
        (FeatureUpdate("group.version", 1, 9), "The controller does not support the given upgrade type."),
        (
            FeatureUpdate("group.version", 1, FeatureUpgradeType.SAFE_DOWNGRADE),
            "Can't downgrade to a newer version.",
        ),
        (
            FeatureUpdate(METADATA_VERSION, 20),
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade.",
        ),
        (
            FeatureUpdate(METADATA_VERSION, 20, FeatureUpgradeType.SAFE_DOWNGRADE),
            "Refusing to perform the requested downgrade because it might delete metadata information.",
        ),
        (
            FeatureUpdate(METADATA_VERSION, 22, FeatureUpgradeType.UNSAFE_DOWNGRADE),
            "Unsafe metadata downgrade is not supported in this version.",
        ),
    ],
)
def test_if_one_update_is_rejected_none_is_made(cluster: Cluster, update: FeatureUpdate, reason: str) -> None:
    before = cluster.image
    other = FeatureUpdate(METADATA_VERSION if update.name != METADATA_VERSION else "group.version", 30)
    response = cluster.submit(UpdateFeatures((update, other)))
    results = dict(response)
    error = results[update.name]
    assert error.code is not ErrorCode.none
    assert error.message == f"Invalid update version {update.level} for feature {update.name}. {reason}"
    assert cluster.image is before


@pytest.mark.parametrize(
    ("before", "after", "is_lowered"),
    [(25, 24, True), (25, 23, True), (29, 23, True), (23, 22, False), (22, 17, True), (30, 29, False)],
)
@pytest.mark.parametrize("kind", [FeatureUpgradeType.SAFE_DOWNGRADE, FeatureUpgradeType.UNSAFE_DOWNGRADE])
def test_metadata_version_is_lowered_where_no_record_has_changed(
    before: int, after: int, is_lowered: bool, kind: FeatureUpgradeType
) -> None:
    """KIP-778: 4.0-IV1 and 4.3-IV0 added fields to metadata records; the levels between did not."""
    settings = ControllerSettings(SETTINGS.validate_configs, supported_features=FEATURES)
    cluster = Cluster(settings=settings)
    cluster.write(FeatureLevelRecord(name=METADATA_VERSION, feature_level=before))
    ((_, error),) = cluster.submit(UpdateFeatures((FeatureUpdate(METADATA_VERSION, after, kind),)))
    assert (error is NO_ERROR) is is_lowered
    assert cluster.image.metadata_version == (after if is_lowered else before)


def ranges(**high: int) -> tuple[FeatureRange, ...]:
    names = {"metadata": METADATA_VERSION, "group": "group.version"}
    return tuple(
        FeatureRange(name=names[name], min_supported_version=0, max_supported_version=level)
        for name, level in high.items()
    )


def test_every_registered_broker_must_support_the_level() -> None:
    cluster = Cluster()
    cluster.submit(replace(cluster.registration(2), features=ranges(metadata=30)))
    ((_, error),) = cluster.submit(UpdateFeatures((FeatureUpdate("group.version", 1),)))
    assert error.code is ErrorCode.invalid_update_version
    assert error.message is not None
    assert error.message.endswith("feature group.version. Broker 2 does not support this feature.")
    cluster.submit(UnregisterBroker(2))
    ((_, error),) = cluster.submit(UpdateFeatures((FeatureUpdate("group.version", 1),)))
    assert error is NO_ERROR


def test_every_registered_controller_must_support_the_level() -> None:
    cluster = Cluster(features={"transaction.version": 1})
    older = FeatureRange(name="transaction.version", min_supported_version=0, max_supported_version=1)
    cluster.submit(RegisterController(7, uuid.UUID(int=5), (), (older,)))
    ((_, error),) = cluster.submit(UpdateFeatures((FeatureUpdate("transaction.version", 2),)))
    assert error.message is not None
    assert error.message.endswith("Controller 7 only supports versions 0-1")


def test_the_level_of_kraft_version_is_checked_but_no_record_of_the_metadata() -> None:
    """KIP-853: the quorum has a record of its own."""
    cluster = Cluster()
    ((_, error),) = cluster.submit(UpdateFeatures((FeatureUpdate(KRAFT_VERSION, 1),)))
    assert error is NO_ERROR
    assert KRAFT_VERSION not in cluster.image.features
    ((_, error),) = cluster.submit(UpdateFeatures((FeatureUpdate(KRAFT_VERSION, 2),)))
    assert error.code is ErrorCode.invalid_update_version
    cluster.submit(replace(cluster.registration(2), features=ranges(metadata=30)))
    ((_, error),) = cluster.submit(UpdateFeatures((FeatureUpdate(KRAFT_VERSION, 1),)))
    assert error.code is ErrorCode.invalid_update_version, "broker 2 does not name it"


def test_eligible_leader_replicas_come_with_one_default_of_min_isr_for_all_brokers() -> None:
    """KIP-966."""
    cluster = Cluster(settings=replace(SETTINGS, min_insync_replicas=2))
    resource = ConfigResource(ResourceType.BROKER, "1")
    cluster.write(
        ConfigRecord(resource_type=4, resource_name="1", name="min.insync.replicas", value="3"),
    )
    cluster.submit(UpdateFeatures((FeatureUpdate(ELR_VERSION, 1),)))
    assert cluster.image.has_elr
    assert resource not in cluster.image.configs
    assert cluster.image.config(ResourceType.BROKER, "") == {"min.insync.replicas": "2"}
