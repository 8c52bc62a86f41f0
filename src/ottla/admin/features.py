"""The feature levels of a cluster (KIP-584, KIP-778, KIP-1022): describe, raise, lower."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, NamedTuple

from kio.schema.api_versions.v4.request import ApiVersionsRequest
from kio.schema.api_versions.v4.response import ApiVersionsResponse
from kio.schema.update_features.v2.request import FeatureUpdateKey, UpdateFeaturesRequest
from kio.schema.update_features.v2.response import UpdateFeaturesResponse
from kio.static.primitive import i8, i16

from ottla import __version__
from ottla.admin.cluster import Cluster, ClusterError
from ottla.admin.nodes import call, call_any, check_error, list_nodes

METADATA_VERSION = "metadata.version"
_FIRST_LEVEL = 17
# Kafka's names for the levels of metadata.version, from `_FIRST_LEVEL` on.
_RELEASES = (
    "3.7-IV2", "3.7-IV3", "3.7-IV4", "3.8-IV0", "3.9-IV0", "4.0-IV0", "4.0-IV1", "4.0-IV2", "4.0-IV3",
    "4.1-IV0", "4.1-IV1", "4.2-IV0", "4.2-IV1", "4.3-IV0",
)  # fmt: skip
_UPGRADE, _SAFE_DOWNGRADE = i8(1), i8(2)
_TIMEOUT: Any = timedelta(seconds=30)


class Feature(NamedTuple):
    """`level` is 0 if the feature is off. All brokers support the levels from `lowest` to `highest`."""

    name: str
    level: int
    lowest: int
    highest: int


def describe_features(cluster: Cluster) -> list[Feature]:
    """Asks every broker that runs, sorted by name."""
    request = ApiVersionsRequest(client_software_name="ottla", client_software_version=__version__)
    nodes = list_nodes(cluster)
    what = "Features cannot be described"
    if not nodes:
        raise ClusterError(f"{what}: the cluster has no broker that runs")
    responses = [call(node, request, ApiVersionsResponse, what) for node in nodes]
    newest = max(responses, key=lambda response: response.finalized_features_epoch)
    levels = {feature.name: int(feature.max_version_level) for feature in newest.finalized_features}
    supported = [
        {
            feature.name: (int(feature.min_version), int(feature.max_version))
            for feature in response.supported_features
        }
        for response in responses
    ]
    names = sorted(levels.keys() | {name for ranges in supported for name in ranges})
    return [
        Feature(
            name,
            levels.get(name, 0),
            max(ranges.get(name, (0, 0))[0] for ranges in supported),
            min(ranges.get(name, (0, 0))[1] for ranges in supported),
        )
        for name in names
    ]


def update_features(
    cluster: Cluster, levels: Mapping[str, int], *, is_downgrade: bool, is_dry_run: bool = False
) -> list[tuple[str, int, int]]:
    """All of them or none. Returns each name with its level before and after. Raises ClusterError."""
    before = {feature.name: feature.level for feature in describe_features(cluster)}
    what = "No feature was changed"
    for name, level in levels.items():
        if is_downgrade and level > before.get(name, 0):
            raise ClusterError(f"{what}: {name} has level {before.get(name, 0)}. Use: ottla features upgrade")
        if not is_downgrade and level < before.get(name, 0):
            raise ClusterError(f"{what}: {name} has level {before[name]}. Use: ottla features downgrade")
    request = UpdateFeaturesRequest(
        timeout=_TIMEOUT,
        feature_updates=tuple(
            FeatureUpdateKey(
                feature=name,
                max_version_level=i16(level),
                upgrade_type=_SAFE_DOWNGRADE if is_downgrade else _UPGRADE,
            )
            for name, level in levels.items()
            if level != before.get(name, 0)
        ),
        validate_only=is_dry_run,
    )
    if request.feature_updates:
        check_error(call_any(cluster, request, UpdateFeaturesResponse, what), what)
    return [(name, before.get(name, 0), level) for name, level in levels.items()]


def parse_level(name: str, text: str) -> int:
    """A number, or for metadata.version also a release as 4.3 or 4.3-IV0. Raises ValueError."""
    if text.isdecimal() and len(text) <= 4:
        return int(text)
    if name == METADATA_VERSION:
        for index in reversed(range(len(_RELEASES))):
            if text in (_RELEASES[index], _RELEASES[index].partition("-")[0]):
                return _FIRST_LEVEL + index
    example = " or a release, e.g. 4.3" if name == METADATA_VERSION else ""
    raise ValueError(f"{name}={text}: expected a level, which is a number{example}")


def level_text(name: str, level: int) -> str:
    """The level, with the release if it is one of metadata.version."""
    index = level - _FIRST_LEVEL
    if name == METADATA_VERSION and 0 <= index < len(_RELEASES):
        return f"{level} ({_RELEASES[index]})"
    return str(level)
