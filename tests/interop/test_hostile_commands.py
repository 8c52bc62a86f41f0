"""A command of very many elements to a coordinator, a partition or the controller does not delay other clients."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.interop.brokers import RunningBroker, run_ottla
from tests.interop.kio_client import KioClient, errors_in
from tests.interop.librdkafka import create_topic
from tests.interop.neighbour import Neighbour

OFFSET_COMMIT = 8
FIND_COORDINATOR = 10
LEAVE_GROUP = 13
INIT_PRODUCER_ID = 22
ADD_OFFSETS_TO_TXN = 25
WRITE_TXN_MARKERS = 27
TXN_OFFSET_COMMIT = 28
ALTER_CONFIGS = 33
INCREMENTAL_ALTER_CONFIGS = 44
OFFSET_DELETE = 47

TOPIC = 2
WIDTH = 1000
REPEATED = 200  # the elements of a request are limited to 250,000
MANY = WIDTH * REPEATED
GROUP = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": ""}

pytestmark = pytest.mark.slow


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    """A separate broker with a topic of many partitions. The internal topics exist."""
    with run_ottla(tmp_path / "data") as running:
        create_topic(running.bootstrap, "neighbour")
        create_topic(running.bootstrap, "wide", WIDTH)
        with KioClientOf(running) as client:
            for key_type in (0, 1):
                client.ask(FIND_COORDINATOR, 4, key_type=key_type, coordinator_keys=["some"])
        yield running


class KioClientOf:
    def __init__(self, broker: RunningBroker) -> None:
        self._client = KioClient(broker.bootstrap, timeout_s=300.0)

    def __enter__(self) -> KioClient:
        return self._client

    def __exit__(self, *_: object) -> None:
        self._client.close()


def ask_beside_a_neighbour(broker: RunningBroker, api_key: int, version: int, **fields: Any) -> Any:
    with KioClientOf(broker) as client, Neighbour(broker, "neighbour") as neighbour:
        response = client.ask(api_key, version, **fields)
        neighbour.wait_for_requests()
    return response


def wide(**fields: Any) -> list[dict[str, Any]]:
    partitions = [{"partition_index": index, **fields} for index in range(WIDTH)]
    return [{"name": "wide", "partitions": partitions}] * REPEATED


def offsets() -> list[dict[str, Any]]:
    return wide(committed_offset=7, committed_leader_epoch=-1, committed_metadata="")


def test_offsets_are_deleted_in_turns(broker: RunningBroker) -> None:
    with KioClientOf(broker) as client:
        committed = client.ask(OFFSET_COMMIT, 8, **GROUP, topics=offsets()[:1])
    assert errors_in(committed) == []
    response = ask_beside_a_neighbour(broker, OFFSET_DELETE, 0, group_id="g", topics=wide())
    assert errors_in(response) == []
    assert sum(len(topic.partitions) for topic in response.topics) == MANY


def test_offsets_of_a_transaction_are_committed_in_turns(broker: RunningBroker) -> None:
    with KioClientOf(broker) as client:
        producer = client.ask(
            INIT_PRODUCER_ID,
            4,
            transactional_id="t",
            transaction_timeout=900_000,
            producer_id=-1,
            producer_epoch=-1,
        )
        sender = {
            "transactional_id": "t",
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
            "group_id": "g",
        }
        assert errors_in(client.ask(ADD_OFFSETS_TO_TXN, 3, **sender)) == []
    response = ask_beside_a_neighbour(broker, TXN_OFFSET_COMMIT, 3, **sender, topics=offsets())
    assert errors_in(response) == []
    assert sum(len(topic.partitions) for topic in response.topics) == MANY


def test_members_leave_in_turns(broker: RunningBroker) -> None:
    with KioClientOf(broker) as client:
        assert errors_in(client.ask(OFFSET_COMMIT, 8, **GROUP, topics=offsets()[:1])) == []
    members = [{"member_id": f"{index:06x}", "group_instance_id": None} for index in range(MANY)]
    response = ask_beside_a_neighbour(broker, LEAVE_GROUP, 4, group_id="g", members=members)
    assert errors_in(response) == ["unknown_member_id"] * MANY


def test_markers_are_written_in_turns(broker: RunningBroker) -> None:
    markers = [
        {
            "producer_id": 1000 + number,
            "producer_epoch": 0,
            "transaction_result": False,
            "topics": [{"name": "wide", "partition_indexes": list(range(WIDTH))}],
            "coordinator_epoch": 0,
        }
        for number in range(20)
    ]
    unknown = {**markers[0], "topics": [{"name": "gone", "partition_indexes": list(range(MANY))}]}
    response = ask_beside_a_neighbour(broker, WRITE_TXN_MARKERS, 1, markers=[*markers, unknown])
    assert errors_in(response) == ["unknown_topic_or_partition"] * MANY


@pytest.mark.parametrize("api_key", [ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS])
@pytest.mark.parametrize("resources", [1, 40_000])
def test_configs_are_altered_in_turns(broker: RunningBroker, api_key: int, resources: int) -> None:
    is_incremental = api_key == INCREMENTAL_ALTER_CONFIGS
    of_each = MANY // resources
    operation = {"config_operation": 0} if is_incremental else {}
    asked = [
        {
            "resource_type": TOPIC,
            "resource_name": f"gone-{number}",
            "configs": [
                {"name": f"retention.{index}", "value": "1", **operation} for index in range(of_each)
            ],
        }
        for number in range(resources)
    ]
    version = 1 if is_incremental else 2
    response = ask_beside_a_neighbour(broker, api_key, version, resources=asked, validate_only=False)
    assert errors_in(response) == ["invalid_config"] * resources
