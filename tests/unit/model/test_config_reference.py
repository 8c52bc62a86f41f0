"""Every config is documented, and docs/configs.md is up to date."""

from pathlib import Path

from ottla.model.config import ResourceType, documentation_of
from ottla.model.config.definitions import (
    BROKER_CONFIGS,
    CLIENT_METRICS_CONFIGS,
    GROUP_CONFIGS,
    TOPIC_CONFIGS,
)
from ottla.model.config.reference import reference_markdown

PAGE = Path(__file__).parents[3] / "docs" / "configs.md"


def test_every_config_has_a_description() -> None:
    for resource, configs in (
        (ResourceType.TOPIC, TOPIC_CONFIGS),
        (ResourceType.BROKER, BROKER_CONFIGS),
        (ResourceType.GROUP, GROUP_CONFIGS),
        (ResourceType.CLIENT_METRICS, CLIENT_METRICS_CONFIGS),
    ):
        for name in configs:
            text = documentation_of(resource, name)
            assert text, name
            assert text.endswith("."), name
    assert documentation_of(ResourceType.BROKER, "bogus") is None
    assert documentation_of(ResourceType.BROKER, "listener.name.a.max.connections")


def test_docs_configs_is_the_output_of_the_command() -> None:
    assert PAGE.read_text() == reference_markdown(), "run: ottla configs reference > docs/configs.md"
