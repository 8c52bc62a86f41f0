"""Feature levels can be raised up to the levels that this release supports (KIP-584)."""

import pytest
from tests.unit.core.controller.controller_cluster import SETTINGS, Cluster

from ottla.core.controller.commands import (
    NO_ERROR,
    FeatureUpdate,
    FeatureUpgradeType,
    UpdateFeatures,
)
from ottla.core.controller.image import METADATA_VERSION
from ottla.core.controller.settings import ControllerSettings
from ottla.model.errors import ErrorCode
from ottla.protocol.metadata_records.records import FeatureLevelRecord

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
        (FeatureUpdate(METADATA_VERSION, 31), "Valid versions are from 17 to 30."),
        (FeatureUpdate(METADATA_VERSION, 0), "Valid versions are from 17 to 30."),
        (FeatureUpdate("group.version", 2), "Valid versions are from 0 to 1."),
        (FeatureUpdate("nope", 1), "The controller does not support this feature."),
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
