"""kafkajs, the JavaScript client: its producer and its admin client, with records read back by librdkafka.

Its consumer is in `test_groups_kafkajs`: it has no life without a group.
"""

import pytest
from tests.interop.brokers import RunningBroker
from tests.interop.kafkajs import run_check
from tests.interop.librdkafka import read_records

pytestmark = [pytest.mark.contract, pytest.mark.node]


def test_kafkajs_records_are_read_by_librdkafka(broker: RunningBroker, topic_name: str) -> None:
    run_check(broker.bootstrap, topic_name, "produce")
    records = read_records(broker.bootstrap, topic_name, 211, check_crcs=True)
    sent = [f"{kind}{n}" for kind in ("plain", "gzip") for n in range(100)] + [
        f"idempotent{n}" for n in range(10)
    ]
    assert [record.value() for record in records] == [*(value.encode() for value in sent), None]
    assert (records[105].key(), records[105].headers()) == (b"k5", [("n", b"5")])


@pytest.mark.parametrize("check", ["admin", "offsets"])
def test_kafkajs_administers(broker: RunningBroker, topic_name: str, check: str) -> None:
    run_check(broker.bootstrap, topic_name, check)
