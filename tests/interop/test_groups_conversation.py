"""The same requests to Ottla and to Apache Kafka: every response and every record is the same.

Members are sockets that say what their part in a scene is, so that nothing depends on the timing of a client.
"""

import base64
import contextlib
import json
import struct
import uuid
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicCollection
from tests.interop.brokers import run_kafka, run_ottla
from tests.interop.conftest import BrokerStarter
from tests.interop.group_clients import GROUP_BROKER
from tests.interop.group_records import dumped, without_times
from tests.interop.group_wire import (
    CONSUMER_GROUP_DESCRIBE,
    CONSUMER_GROUP_HEARTBEAT,
    DELETE_GROUPS,
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    OFFSET_COMMIT,
    SESSION_MS,
    SYNC_GROUP,
    delete_offset,
    describe_groups,
    fetch,
    offset_of,
)
from tests.interop.kio_client import KioClient, errors_in, subscription
from tests.interop.librdkafka import TIMEOUT_S, admin_of, create_topic, wait_until

pytestmark = [pytest.mark.java, pytest.mark.slow]

TOPIC = "orders"
BROKERS: dict[str, BrokerStarter] = {"kafka": run_kafka, "ottla": run_ottla}
# Kafka still deletes the records of the group's topics, which it no longer writes.
TOPICS_OF_GROUP = "4"
# A group that was upgraded has no hash of its topics yet, and one that was downgraded no leader: both are open until
# they are decided, whereas Kafka uses what it finds.
OPEN = {"leader", "metadataHash"}
# A target assignment that waits for its interval would make the sequence random.
AT_ONCE = GROUP_BROKER | {"group.consumer.assignment.interval.ms": "0"}


class Conversation:
    """The requests and responses of one group, with names in place of ids."""

    def __init__(self, bootstrap: str, group_id: str, topic_id: uuid.UUID) -> None:
        self.group_id = group_id
        self.topic_id = topic_id
        self.said: list[tuple[str, Any]] = []
        self.names: dict[str, str] = {str(topic_id): "TOPIC", kafka_id(topic_id): "TOPIC"}
        self.bootstrap = bootstrap
        self._clients: dict[str, KioClient] = {}

    def tell(self, who: str, api_key: int, version: int, **values: Any) -> None:
        """Sends a request; the response is read later."""
        self._client(who).send(api_key, version, **values)

    def hear(self, who: str, api_key: int, version: int) -> Any:
        answer = self._client(who).receive(api_key, version)
        self.said.append((f"{who} hears of {api_key}", answer))
        return answer

    def ask(self, who: str, api_key: int, version: int, **values: Any) -> Any:
        self.tell(who, api_key, version, **values)
        return self.hear(who, api_key, version)

    def call(self, real_id: str, name: str) -> str:
        self.names[real_id] = name
        return real_id

    def rename(self, text: str) -> str:
        for real_id, name in self.names.items():
            text = text.replace(real_id, name)
        return text

    def transcript(self) -> list[str]:
        return [f"{line}: {plain(answer, self.rename)}" for line, answer in self.said]

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def _client(self, who: str) -> KioClient:
        if who not in self._clients:
            self._clients[who] = KioClient(self.bootstrap)
        return self._clients[who]


def kafka_id(value: uuid.UUID) -> str:
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def plain(answer: Any, rename: Callable[[str], str]) -> str:
    """A response as text, with members by their names, and without error messages, which may differ."""
    if is_dataclass(answer):
        shown = [
            f"{field.name}={plain(getattr(answer, field.name), rename)}"
            for field in fields(answer)
            if field.name not in ("error_message", "throttle_time")
        ]
        return f"({', '.join(shown)})"
    if isinstance(answer, tuple):
        return f"[{', '.join(sorted(plain(item, rename) for item in answer))}]"
    return rename(str(answer))


# -- the classic protocol


def join_at_once(scene: Conversation, name: str, **changes: Any) -> str:
    """Joins a group that has no other members. Returns the member's id."""
    request = join_fields(scene) | changes
    answer = scene.ask(name, JOIN_GROUP, 9, **request)
    if errors_in(answer) == ["member_id_required"]:
        scene.call(answer.member_id, name)
        answer = scene.ask(name, JOIN_GROUP, 9, **request | {"member_id": answer.member_id})
    return scene.call(answer.member_id, name)


def join_fields(scene: Conversation) -> dict[str, Any]:
    return {
        "group_id": scene.group_id,
        "session_timeout": SESSION_MS,
        "rebalance_timeout": SESSION_MS,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": subscription(TOPIC)}],
        "reason": "the scene wants it",
    }


def sync(scene: Conversation, name: str, member_id: str, generation: int, **assigned: list[int]) -> None:
    """As the leader, with the assignment of each member (by its id), or as another member."""
    real = {name: real_id for real_id, name in scene.names.items()}
    assignments = [{"member_id": real[who], "assignment": assignment(p)} for who, p in assigned.items()]
    scene.ask(
        name,
        SYNC_GROUP,
        5,
        group_id=scene.group_id,
        generation_id=generation,
        member_id=member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=assignments,
    )


def assignment(partitions: list[int]) -> bytes:
    """ConsumerProtocolAssignment v0."""
    head = struct.pack(">hih", 0, 1, len(TOPIC)) + TOPIC.encode()
    return head + struct.pack(f">i{len(partitions)}ii", len(partitions), *partitions, -1)


def beat(scene: Conversation, name: str, member_id: str, generation: int) -> None:
    scene.ask(name, HEARTBEAT, 4, group_id=scene.group_id, generation_id=generation, member_id=member_id)


def leave(scene: Conversation, name: str, **member: Any) -> None:
    members = [{"member_id": "", "reason": "the scene is over", **member}]
    scene.ask(name, LEAVE_GROUP, 5, group_id=scene.group_id, members=members)


def commit(scene: Conversation, name: str, member_id: str, epoch: int, partition: int = 0) -> None:
    topics = [offset_of(TOPIC, partition, 5, "a note")]
    member = {"member_id": member_id, "generation_id_or_member_epoch": epoch}
    scene.ask(name, OFFSET_COMMIT, 9, group_id=scene.group_id, topics=topics, **member)


def look(scene: Conversation) -> None:
    described = {"group_ids": (scene.group_id,), "include_authorized_operations": False}
    key, version, request = describe_groups(scene.group_id)
    scene.ask("admin", key, version, **request)
    scene.ask("admin", CONSUMER_GROUP_DESCRIBE, 1, **described)
    key, version, request = fetch(scene.group_id, TOPIC)
    scene.ask("admin", key, version, **request)


def two_members_come_and_go(scene: Conversation) -> None:
    anna = join_at_once(scene, "anna")
    sync(scene, "anna", anna, 1, anna=[0, 1])
    beat(scene, "anna", anna, 1)
    commit(scene, "anna", anna, 1)
    look(scene)
    needs_id = scene.ask("bert", JOIN_GROUP, 9, **join_fields(scene))
    bert = scene.call(needs_id.member_id, "bert")
    scene.tell("bert", JOIN_GROUP, 9, **join_fields(scene) | {"member_id": bert})
    wait_for_rebalance(scene, anna, 1)
    beat(scene, "anna", anna, 1)
    commit(scene, "anna", anna, 1, partition=1)
    scene.tell("anna", JOIN_GROUP, 9, **join_fields(scene) | {"member_id": anna})
    scene.hear("anna", JOIN_GROUP, 9)
    scene.hear("bert", JOIN_GROUP, 9)
    commit(scene, "anna", anna, 2)
    sync(scene, "anna", anna, 2, anna=[0], bert=[1])
    sync(scene, "bert", bert, 2)
    look(scene)
    leave(scene, "bert", member_id=bert)
    beat(scene, "bert", bert, 2)
    beat(scene, "anna", anna, 2)
    scene.ask("anna", JOIN_GROUP, 9, **join_fields(scene) | {"member_id": anna})
    sync(scene, "anna", anna, 3, anna=[0, 1])
    key, version, request = delete_offset(scene.group_id, TOPIC)
    scene.ask("admin", key, version, **request)
    leave(scene, "anna", member_id=anna)
    look(scene)
    scene.ask("admin", key, version, **request)
    look(scene)
    scene.ask("admin", DELETE_GROUPS, 2, groups_names=(scene.group_id,))
    look(scene)


def wait_for_rebalance(scene: Conversation, member_id: str, generation: int) -> None:
    """Uses another connection, so that the number of attempts is not part of the sequence."""
    with contextlib.closing(KioClient(scene.bootstrap)) as aside:
        member = {"group_id": scene.group_id, "generation_id": generation, "member_id": member_id}
        wait_until(
            lambda: errors_in(aside.ask(HEARTBEAT, 4, **member)) == ["rebalance_in_progress"],
            "the group rebalances",
        )


def a_static_member_is_replaced(scene: Conversation) -> None:
    old = join_at_once(scene, "old", group_instance_id="instance")
    sync(scene, "old", old, 1, old=[0, 1])
    new = join_at_once(scene, "new", group_instance_id="instance")
    sync(scene, "new", new, 1)
    static = {"group_id": scene.group_id, "generation_id": 1, "group_instance_id": "instance"}
    scene.ask("old", HEARTBEAT, 4, **static, member_id=old)
    scene.ask("new", HEARTBEAT, 4, **static, member_id=new)
    look(scene)
    leave(scene, "admin", group_instance_id="instance")
    look(scene)


# -- the consumer protocol


def heartbeat(
    scene: Conversation, name: str, epoch: int, owned: list[int] | None = None, **changes: Any
) -> Any:
    real = {name: real_id for real_id, name in scene.names.items()}
    member_id = real.get(name) or scene.call(str(uuid.uuid4()), name)
    partitions = None if owned is None else [{"topic_id": scene.topic_id, "partitions": tuple(owned)}]
    return scene.ask(
        name,
        CONSUMER_GROUP_HEARTBEAT,
        1,
        group_id=scene.group_id,
        member_id=member_id,
        member_epoch=epoch,
        **{"topic_partitions": partitions if owned != [] else []} | changes,
    )


JOINING = {"rebalance_timeout": SESSION_MS, "subscribed_topic_names": (TOPIC,)}


def members_reconcile(scene: Conversation) -> None:
    anna = heartbeat(scene, "anna", 0, [], **JOINING)
    heartbeat(scene, "anna", anna.member_epoch, [0, 1])
    commit(scene, "anna", anna.member_id, anna.member_epoch)
    look(scene)
    bert = heartbeat(scene, "bert", 0, [], **JOINING, instance_id="instance", rack_id="rack")
    told = heartbeat(scene, "anna", anna.member_epoch)
    kept = list(told.assignment.topic_partitions[0].partitions)
    bert = heartbeat(scene, "bert", bert.member_epoch)
    look(scene)
    told = heartbeat(scene, "anna", anna.member_epoch, kept)
    bert = heartbeat(scene, "bert", bert.member_epoch)
    look(scene)
    heartbeat(scene, "bert", -2, instance_id="instance")
    look(scene)
    back = heartbeat(scene, "back", 0, [], **JOINING, instance_id="instance")
    heartbeat(scene, "bert", bert.member_epoch)
    look(scene)
    heartbeat(scene, "anna", -1)
    back = heartbeat(scene, "back", back.member_epoch)
    heartbeat(scene, "back", back.member_epoch, [0, 1], subscribed_topic_names=("none",))
    look(scene)
    heartbeat(scene, "back", -1)
    look(scene)
    scene.ask("admin", DELETE_GROUPS, 2, groups_names=(scene.group_id,))
    look(scene)


def a_group_moves_to_the_consumer_protocol_and_back(scene: Conversation) -> None:
    anna = join_at_once(scene, "anna")
    sync(scene, "anna", anna, 1, anna=[0, 1])
    commit(scene, "anna", anna, 1)
    bert = heartbeat(scene, "bert", 0, [], **JOINING)
    look(scene)
    beat(scene, "anna", anna, 1)
    joined = scene.ask("anna", JOIN_GROUP, 9, **join_fields(scene) | {"member_id": anna})
    sync(scene, "anna", anna, joined.generation_id)
    look(scene)
    beat(scene, "anna", anna, joined.generation_id)
    joined = scene.ask("anna", JOIN_GROUP, 9, **join_fields(scene) | {"member_id": anna})
    sync(scene, "anna", anna, joined.generation_id)
    bert = heartbeat(scene, "bert", bert.member_epoch)
    commit(scene, "anna", anna, joined.generation_id)
    look(scene)
    heartbeat(scene, "bert", -1)
    look(scene)
    wait_for_rebalance(scene, anna, joined.generation_id)
    joined = scene.ask("anna", JOIN_GROUP, 9, **join_fields(scene) | {"member_id": anna})
    sync(scene, "anna", anna, joined.generation_id, anna=[0, 1])
    look(scene)
    leave(scene, "anna", member_id=anna)
    look(scene)


SCENES: tuple[Callable[[Conversation], None], ...] = (
    two_members_come_and_go,
    a_static_member_is_replaced,
    members_reconcile,
    a_group_moves_to_the_consumer_protocol_and_back,
)


def play(libs: Path, name: str, data_dir: Path) -> dict[str, tuple[list[str], list[str]]]:
    """The responses and the written records of each scene."""
    scenes: dict[str, Conversation] = {}
    with BROKERS[name](data_dir, set=AT_ONCE) as broker, contextlib.ExitStack() as stack:
        create_topic(broker.bootstrap, TOPIC, partitions=2)
        admin = admin_of(broker.bootstrap)
        described = admin.describe_topics(TopicCollection([TOPIC]))[TOPIC].result(TIMEOUT_S)
        topic_id = uuid.UUID(bytes=base64.urlsafe_b64decode(str(described.topic_id) + "=="))
        for act in SCENES:
            scene = Conversation(broker.bootstrap, act.__name__, topic_id)
            stack.callback(scene.close)
            wait_for_coordinator(broker.bootstrap, scene.group_id)
            act(scene)
            scenes[scene.group_id] = scene
        broker.stop()
    names = {real_id: name for scene in scenes.values() for real_id, name in scene.names.items()}
    written: dict[str, list[str]] = {group_id: [] for group_id in scenes}
    for key, value in dumped(libs, data_dir, names):
        if key["type"] != TOPICS_OF_GROUP:
            written[key["data"].get("groupId") or key["data"]["group"]].append(plain_record(key, value))
    return {group_id: (scene.transcript(), written[group_id]) for group_id, scene in scenes.items()}


def plain_record(key: dict[str, Any], value: dict[str, Any] | None) -> str:
    """Without timestamps, and without the intended differences of Ottla."""
    if value is not None and "members" in value["data"]:
        value["data"]["members"].sort(key=lambda member: member["memberId"])
    shown = without_times(value)
    if shown is not None:
        shown["data"] = {name: shown["data"][name] for name in shown["data"] if name not in OPEN}
    return json.dumps([key, shown])


def wait_for_coordinator(bootstrap: str, group_id: str) -> None:
    with contextlib.closing(KioClient(bootstrap)) as client:
        find = {"key_type": 0, "coordinator_keys": (group_id,)}
        stranger = {"group_id": group_id, "generation_id": 1, "member_id": "?"}
        wait_until(
            lambda: (
                not errors_in(client.ask(FIND_COORDINATOR, 6, **find))
                and errors_in(client.ask(HEARTBEAT, 4, **stranger)) == ["unknown_member_id"]
            ),
            "the group has a coordinator that has loaded",
        )


def test_the_same_requests_have_the_same_responses_and_leave_the_same_records_as_in_kafka(
    kafka_libs: Path, tmp_path: Path
) -> None:
    kafka, ottla = (play(kafka_libs, name, tmp_path / name) for name in BROKERS)
    for group_id, (answers, records) in kafka.items():
        assert ottla[group_id][0] == answers, group_id
        # The order of the records of one request is not specified.
        assert sorted(ottla[group_id][1]) == sorted(records), group_id
