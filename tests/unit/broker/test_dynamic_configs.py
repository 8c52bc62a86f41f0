"""Which dynamic configs a broker takes from the metadata."""

import pytest

from ottla.broker.dynamic_configs import DynamicConfigs
from ottla.core.controller.image import ELR_VERSION, ConfigResource, MetadataImage
from ottla.model.config import BrokerConfig, ResourceType

NAME = "min.insync.replicas"


@pytest.mark.parametrize(("level", "expected"), [(0, 1), (1, 2)])
def test_min_insync_replicas_of_one_broker_has_no_effect_with_elr(level: int, expected: int) -> None:
    """KIP-966: leaders and the controller must take the same value."""
    config = BrokerConfig({"node.id": "7", "log.dirs": "/data"})
    image = MetadataImage(
        features={ELR_VERSION: level},
        configs={
            ConfigResource(ResourceType.BROKER, "7"): {NAME: "1"},
            ConfigResource(ResourceType.BROKER, ""): {NAME: "2"},
        },
    )
    DynamicConfigs(config).apply(image)
    assert config.get_int(NAME) == expected
