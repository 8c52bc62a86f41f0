"""The API keys that a node serves, with their versions, the first flexible version (KIP-482) and their listeners."""

from enum import Enum, IntEnum
from typing import NamedTuple


class ApiKey(IntEnum):
    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82


class ListenerKind(Enum):
    """Clients and brokers connect to a broker's listener, brokers and controllers to a controller's."""

    BROKER = "broker"
    CONTROLLER = "controller"


_BOTH = frozenset(ListenerKind)
_ON_CONTROLLER = frozenset({ListenerKind.CONTROLLER})


class ApiSpec(NamedTuple):
    """`is_latest_unstable`: the last version is offered only with `unstable.api.versions.enable`."""

    min_version: int
    max_version: int
    first_flexible: int
    is_latest_unstable: bool = False
    listeners: frozenset[ListenerKind] = frozenset({ListenerKind.BROKER})

    def latest_enabled(self, *, unstable: bool) -> int:
        return self.max_version - (self.is_latest_unstable and not unstable)


# min, max and first flexible version of Kafka 4.3 (KIP-896 removed the versions below `min`).
APIS: dict[ApiKey, ApiSpec] = {
    ApiKey.PRODUCE: ApiSpec(3, 13, 9),
    ApiKey.FETCH: ApiSpec(4, 18, 12, listeners=_BOTH),
    ApiKey.LIST_OFFSETS: ApiSpec(1, 11, 6),
    ApiKey.METADATA: ApiSpec(0, 13, 9),
    ApiKey.OFFSET_COMMIT: ApiSpec(2, 10, 8),
    ApiKey.OFFSET_FETCH: ApiSpec(1, 10, 6),
    ApiKey.FIND_COORDINATOR: ApiSpec(0, 6, 3),
    ApiKey.JOIN_GROUP: ApiSpec(0, 9, 6),
    ApiKey.HEARTBEAT: ApiSpec(0, 4, 4),
    ApiKey.LEAVE_GROUP: ApiSpec(0, 5, 4),
    ApiKey.SYNC_GROUP: ApiSpec(0, 5, 4),
    ApiKey.DESCRIBE_GROUPS: ApiSpec(0, 6, 5),
    ApiKey.LIST_GROUPS: ApiSpec(0, 5, 3),
    ApiKey.API_VERSIONS: ApiSpec(0, 4, 3, listeners=_BOTH),
    ApiKey.CREATE_TOPICS: ApiSpec(2, 7, 5, listeners=_BOTH),
    ApiKey.DELETE_TOPICS: ApiSpec(1, 6, 4, listeners=_BOTH),
    ApiKey.DELETE_RECORDS: ApiSpec(0, 2, 2),
    ApiKey.INIT_PRODUCER_ID: ApiSpec(0, 6, 2, is_latest_unstable=True),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: ApiSpec(2, 4, 4),
    ApiKey.ADD_PARTITIONS_TO_TXN: ApiSpec(0, 5, 3),
    ApiKey.ADD_OFFSETS_TO_TXN: ApiSpec(0, 4, 3),
    ApiKey.END_TXN: ApiSpec(0, 5, 3),
    ApiKey.WRITE_TXN_MARKERS: ApiSpec(1, 2, 1),
    ApiKey.TXN_OFFSET_COMMIT: ApiSpec(0, 5, 3),
    ApiKey.DESCRIBE_CONFIGS: ApiSpec(1, 4, 4, listeners=_BOTH),
    ApiKey.ALTER_CONFIGS: ApiSpec(0, 2, 2, listeners=_BOTH),
    ApiKey.ALTER_REPLICA_LOG_DIRS: ApiSpec(1, 2, 2),
    ApiKey.DESCRIBE_LOG_DIRS: ApiSpec(1, 5, 2),
    ApiKey.CREATE_PARTITIONS: ApiSpec(0, 3, 2, listeners=_BOTH),
    ApiKey.DELETE_GROUPS: ApiSpec(0, 2, 2),
    ApiKey.ELECT_LEADERS: ApiSpec(0, 2, 2, listeners=_BOTH),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ApiSpec(0, 1, 1, listeners=_BOTH),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: ApiSpec(0, 1, 0, listeners=_BOTH),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: ApiSpec(0, 0, 0, listeners=_BOTH),
    ApiKey.OFFSET_DELETE: ApiSpec(0, 0, 1),
    ApiKey.VOTE: ApiSpec(0, 2, 0, listeners=_ON_CONTROLLER),
    ApiKey.BEGIN_QUORUM_EPOCH: ApiSpec(0, 1, 1, listeners=_ON_CONTROLLER),
    ApiKey.END_QUORUM_EPOCH: ApiSpec(0, 1, 1, listeners=_ON_CONTROLLER),
    ApiKey.DESCRIBE_QUORUM: ApiSpec(0, 2, 0, listeners=_BOTH),
    ApiKey.ALTER_PARTITION: ApiSpec(2, 3, 0, listeners=_ON_CONTROLLER),
    ApiKey.UPDATE_FEATURES: ApiSpec(0, 2, 0, listeners=_BOTH),
    ApiKey.ENVELOPE: ApiSpec(0, 0, 0, listeners=_ON_CONTROLLER),
    ApiKey.FETCH_SNAPSHOT: ApiSpec(0, 1, 0, listeners=_ON_CONTROLLER),
    ApiKey.DESCRIBE_CLUSTER: ApiSpec(0, 2, 0, listeners=_BOTH),
    ApiKey.DESCRIBE_PRODUCERS: ApiSpec(0, 0, 0),
    ApiKey.BROKER_REGISTRATION: ApiSpec(0, 4, 0, listeners=_ON_CONTROLLER),
    ApiKey.BROKER_HEARTBEAT: ApiSpec(0, 2, 0, listeners=_ON_CONTROLLER),
    ApiKey.UNREGISTER_BROKER: ApiSpec(0, 0, 0, listeners=_BOTH),
    ApiKey.DESCRIBE_TRANSACTIONS: ApiSpec(0, 0, 0),
    ApiKey.LIST_TRANSACTIONS: ApiSpec(0, 2, 0),
    ApiKey.ALLOCATE_PRODUCER_IDS: ApiSpec(0, 0, 0, listeners=_ON_CONTROLLER),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: ApiSpec(0, 1, 0),
    ApiKey.CONSUMER_GROUP_DESCRIBE: ApiSpec(0, 1, 0),
    ApiKey.CONTROLLER_REGISTRATION: ApiSpec(0, 0, 0, listeners=_ON_CONTROLLER),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: ApiSpec(0, 0, 0),
    ApiKey.PUSH_TELEMETRY: ApiSpec(0, 0, 0),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: ApiSpec(0, 0, 0, listeners=_ON_CONTROLLER),
    ApiKey.LIST_CONFIG_RESOURCES: ApiSpec(0, 1, 0),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: ApiSpec(0, 0, 0),
    ApiKey.ADD_RAFT_VOTER: ApiSpec(0, 1, 0, listeners=_BOTH),
    ApiKey.REMOVE_RAFT_VOTER: ApiSpec(0, 0, 0, listeners=_BOTH),
    ApiKey.UPDATE_RAFT_VOTER: ApiSpec(0, 0, 0, listeners=_ON_CONTROLLER),
}


def apis_of(kind: ListenerKind) -> dict[ApiKey, ApiSpec]:
    """The APIs that a listener of this kind serves."""
    return {key: spec for key, spec in APIS.items() if kind in spec.listeners}
