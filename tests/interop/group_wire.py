"""Two groups on one plain socket, and requests that are valid except for the fields that a test changes."""

import uuid
from dataclasses import dataclass, field
from typing import Any

from tests.interop.kio_client import KioClient, errors_in, subscription
from tests.interop.librdkafka import wait_until

OFFSET_COMMIT = 8
OFFSET_FETCH = 9
FIND_COORDINATOR = 10
JOIN_GROUP = 11
HEARTBEAT = 12
LEAVE_GROUP = 13
SYNC_GROUP = 14
DESCRIBE_GROUPS = 15
LIST_GROUPS = 16
DELETE_GROUPS = 42
OFFSET_DELETE = 47
CONSUMER_GROUP_HEARTBEAT = 68
CONSUMER_GROUP_DESCRIBE = 69

Request = tuple[int, int, dict[str, Any]]
SESSION_MS = 60_000


@dataclass
class Stage:
    """A classic group and a consumer group, each stable with one static member that has committed offset 5."""

    client: KioClient
    topic: str
    classic: str = field(default_factory=lambda: f"classic-{uuid.uuid4().hex[:8]}")
    consumer: str = field(default_factory=lambda: f"consumer-{uuid.uuid4().hex[:8]}")
    nowhere: str = field(default_factory=lambda: f"nowhere-{uuid.uuid4().hex[:8]}")
    member_id: str = ""
    consumer_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    epoch: int = 0

    def ask(self, request: Request) -> Any:
        api_key, version, fields = request
        return self.client.ask(api_key, version, **fields)

    def errors(self, request: Request) -> list[str]:
        return errors_in(self.ask(request))

    def set_up(self) -> None:
        wait_until(self._is_coordinated, "both groups have a coordinator that has loaded")
        joined = self.ask(join(self, group_instance_id="static", member_id=""))
        self.member_id = joined.member_id
        assert (errors_in(joined), joined.generation_id) == ([], 1)
        mine = [{"member_id": self.member_id, "assignment": b"mine"}]
        assert self.errors(sync(self, assignments=mine)) == []
        if not self._is_assigned(self.ask(consumer_join(self, self.consumer_id, instance_id="static"))):
            # The coordinator knows the new topic a little later than the broker.
            wait_until(lambda: self._is_assigned(self.ask(consumer_heartbeat(self))), "the topic is assigned")
        assert self.errors(commit(self)) == []
        assert self.errors(consumer_commit(self)) == []

    def _is_assigned(self, heard: Any) -> bool:
        assert errors_in(heard) == []
        self.epoch = heard.member_epoch
        return heard.assignment is not None and len(heard.assignment.topic_partitions) > 0

    def look(self) -> list[Any]:
        """Everything that is visible of the two groups, and of the unknown one."""
        all_three = (self.classic, self.consumer, self.nowhere)
        groups = [{"group_id": group_id, "topics": None} for group_id in all_three]
        listed = self.client.ask(LIST_GROUPS, 5, states_filter=(), types_filter=()).groups
        offsets = self.client.ask(OFFSET_FETCH, 9, groups=groups, require_stable=True)
        return [
            self.client.ask(DESCRIBE_GROUPS, 6, groups=all_three, include_authorized_operations=False),
            self.client.ask(
                CONSUMER_GROUP_DESCRIBE, 1, group_ids=all_three, include_authorized_operations=False
            ),
            sorted(offsets.groups, key=lambda group: str(group.group_id)),
            sorted((g for g in listed if g.group_id in all_three), key=lambda group: str(group.group_id)),
        ]

    def _is_coordinated(self) -> bool:
        """A heartbeat of an unknown member, whose error depends only on the group."""
        find = (FIND_COORDINATOR, 6, {"key_type": 0, "coordinator_keys": (self.classic, self.consumer)})
        strangers = [heartbeat(self, group_id=g, member_id="?") for g in (self.classic, self.consumer)]
        return not self.errors(find) and all(self.errors(s) == ["unknown_member_id"] for s in strangers)


# -- the classic protocol


def join(stage: Stage, version: int = 9, **changes: Any) -> Request:
    fields = {
        "group_id": stage.classic,
        "session_timeout": SESSION_MS,
        "rebalance_timeout": SESSION_MS,
        "member_id": stage.member_id,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": subscription(stage.topic)}],
    }
    return JOIN_GROUP, version, fields | changes


def sync(stage: Stage, version: int = 5, **changes: Any) -> Request:
    protocol = {"protocol_type": "consumer", "protocol_name": "range"}
    return SYNC_GROUP, version, _of_member(stage) | protocol | {"assignments": []} | changes


def heartbeat(stage: Stage, version: int = 4, **changes: Any) -> Request:
    return HEARTBEAT, version, _of_member(stage) | changes


def leave(stage: Stage, *, group_id: str | None = None, **member: Any) -> Request:
    return LEAVE_GROUP, 5, {"group_id": stage.classic if group_id is None else group_id, "members": [member]}


def _of_member(stage: Stage) -> dict[str, Any]:
    return {"group_id": stage.classic, "generation_id": 1, "member_id": stage.member_id}


def describe_groups(group_id: str, version: int = 6) -> Request:
    return DESCRIBE_GROUPS, version, {"groups": (group_id,), "include_authorized_operations": False}


# -- the consumer protocol


def consumer_join(stage: Stage, member_id: str, **changes: Any) -> Request:
    fields = {
        "group_id": stage.consumer,
        "member_id": member_id,
        "member_epoch": 0,
        "rebalance_timeout": SESSION_MS,
        "subscribed_topic_names": (stage.topic,),
        "topic_partitions": [],
    }
    return CONSUMER_GROUP_HEARTBEAT, 1, fields | changes


def consumer_heartbeat(stage: Stage, **changes: Any) -> Request:
    fields = {
        "group_id": stage.consumer,
        "member_id": stage.consumer_id,
        "member_epoch": stage.epoch,
        "topic_partitions": None,
    }
    return CONSUMER_GROUP_HEARTBEAT, 1, fields | changes


# -- offsets


def commit(stage: Stage, version: int = 9, **changes: Any) -> Request:
    fields = {
        "group_id": stage.classic,
        "generation_id_or_member_epoch": 1,
        "member_id": stage.member_id,
        "topics": [offset_of(stage.topic)],
    }
    return OFFSET_COMMIT, version, fields | changes


def consumer_commit(stage: Stage, version: int = 9, **changes: Any) -> Request:
    member = {
        "group_id": stage.consumer,
        "generation_id_or_member_epoch": stage.epoch,
        "member_id": stage.consumer_id,
    }
    return commit(stage, version, **member | changes)


def offset_of(topic: str, partition: int = 0, offset: int = 5, metadata: str = "") -> dict[str, Any]:
    partitions = {
        "partition_index": partition,
        "committed_offset": offset,
        "committed_leader_epoch": -1,
        "committed_metadata": metadata,
    }
    return {"name": topic, "partitions": [partitions]}


def fetch(group_id: str, topic: str, partition: int = 0, **changes: Any) -> Request:
    group = {"group_id": group_id, "topics": [{"name": topic, "partition_indexes": (partition,)}]} | changes
    return OFFSET_FETCH, 9, {"groups": [group], "require_stable": False}


def delete_offset(group_id: str, topic: str, partition: int = 0) -> Request:
    topics = [{"name": topic, "partitions": [{"partition_index": partition}]}]
    return OFFSET_DELETE, 0, {"group_id": group_id, "topics": topics}
