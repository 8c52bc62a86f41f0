"""kafkajs: its group administration and its batch consumer. Its members are in `test_groups_other_clients`."""

import pytest
from tests.interop.brokers import RunningBroker
from tests.interop.kafkajs import run_check

pytestmark = [pytest.mark.contract, pytest.mark.node]


def test_kafkajs_lists_describes_resets_and_deletes_groups(
    group_broker: RunningBroker, topic_name: str
) -> None:
    run_check(group_broker.bootstrap, topic_name, "groups")
