"""The configurations in docs/cluster.md are valid."""

import re
from pathlib import Path

import pytest

from ottla.broker.formatter import needs_cluster_id
from ottla.model.config import BrokerConfig

PAGE = Path(__file__).parents[3] / "docs" / "cluster.md"
EXAMPLES = re.findall(r"```properties\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("text", EXAMPLES)
def test_the_examples_are_valid_configurations_of_nodes_in_a_cluster(text: str) -> None:
    config = BrokerConfig.load(text)
    assert needs_cluster_id(config)
    assert len(config.get_list("controller.quorum.voters")) == 3


def test_the_guide_has_a_node_of_each_kind() -> None:
    roles = [BrokerConfig.load(text).get_list("process.roles") for text in EXAMPLES]
    assert roles == [("broker", "controller"), ("controller",), ("broker",)]
