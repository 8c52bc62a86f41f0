"""The configs of brokers for tests: those that a test may not choose."""

import pytest

from ottla.testing import AsyncKafka, Kafka, KafkaCluster


@pytest.mark.parametrize("kind", [Kafka, AsyncKafka, lambda config: KafkaCluster(3, config)])
@pytest.mark.parametrize("name", ["log.dirs", "log.dir", "listeners"])
def test_ports_and_folders_cannot_be_chosen(kind: type[Kafka], name: str) -> None:
    with pytest.raises(ValueError, match=rf"config {name}: .*Remove it"):
        kind({name: "x"})
