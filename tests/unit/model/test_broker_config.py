"""The configuration of a broker: the precedence of values, and invalid configurations."""

import pytest

from ottla.model.config import (
    BrokerConfig,
    ConfigError,
    Endpoint,
    topic_config,
    topic_config_value,
    validate_broker_configs,
    validate_group_configs,
    validate_topic_configs,
)


def test_the_default_configuration_is_a_single_node_quorum() -> None:
    config = BrokerConfig()
    assert config.node_id == 1
    assert config.get_list("process.roles") == ("broker", "controller")
    assert config.log_dirs == ("/tmp/kafka-logs",)
    assert config.metadata_log_dir == "/tmp/kafka-logs"
    assert config.broker_listeners == [Endpoint("PLAINTEXT", "", 9092, "PLAINTEXT")]
    assert config.controller_listeners == []
    assert config.advertised_listeners == []
    assert config["log.segment.bytes"] == 1 << 30


def test_overrides_have_precedence_over_the_file_and_the_file_over_defaults() -> None:
    config = BrokerConfig.load("num.partitions=3\nlog.segment.bytes=2000000", {"num.partitions": "5"})
    assert config.get_int("num.partitions") == 5
    assert config.get_int("log.segment.bytes") == 2_000_000
    assert config.get_int("message.max.bytes") == 1_048_588
    assert config.is_set("num.partitions")
    assert not config.is_set("message.max.bytes")


def test_dynamic_values_of_the_broker_have_precedence_over_those_of_all_brokers() -> None:
    config = BrokerConfig({"log.segment.bytes": "2000000"})
    changed = config.apply_dynamic(
        {"log.segment.bytes": "4000000"},
        {"log.segment.bytes": "3000000", "log.retention.ms": "5", "own": "x"},
    )
    assert changed == {"log.segment.bytes", "log.retention.ms"}
    assert config["log.segment.bytes"] == 4_000_000
    assert config.apply_dynamic({}, {"log.segment.bytes": "3000000"}) == {
        "log.segment.bytes",
        "log.retention.ms",
    }
    assert config["log.segment.bytes"] == 3_000_000
    assert config.apply_dynamic({}, {}) == {"log.segment.bytes"}
    assert config["log.segment.bytes"] == 2_000_000


def test_an_invalid_dynamic_value_changes_nothing() -> None:
    config = BrokerConfig()
    with pytest.raises(ConfigError, match=r"log\.segment\.bytes"):
        config.apply_dynamic({"log.segment.bytes": "1"}, {"log.retention.ms": "5"})
    assert config["log.retention.ms"] is None


def test_all_errors_are_reported_together_with_name_value_and_allowed_values() -> None:
    with pytest.raises(ConfigError) as rejected:
        BrokerConfig({"log.segment.byte": "1", "num.partitions": "0", "log.preallocate": "maybe", "zzz": "1"})
    unknown, partitions, preallocate, strange = rejected.value.errors
    assert unknown.startswith("Unknown configuration log.segment.byte=1; did you mean log.segment.bytes")
    assert "Invalid value 0 for configuration num.partitions: Value must be at least 1" in partitions
    assert "[1,...]" in partitions
    assert "[true, false]" in preallocate
    assert strange == "Unknown configuration zzz=1; the known names are in docs/configs.md"


def test_a_dynamic_only_config_is_rejected_in_a_file() -> None:
    with pytest.raises(ConfigError, match="can only be set dynamically"):
        BrokerConfig({"leader.replication.throttled.rate": "1000"})


def test_a_malformed_file_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="Malformed escape"):
        BrokerConfig.load("a=\\u1")


@pytest.mark.parametrize(
    ("properties", "problem"),
    [
        ({"log.retention.ms": "0"}, "log.retention.ms must be unlimited"),
        ({"log.retention.hours": "0"}, "log.retention.ms must be unlimited"),
        ({"log.roll.ms": "0"}, "log.roll.ms must be greater"),
        ({"log.roll.jitter.ms": "-1"}, "log.roll.jitter.ms must be greater"),
        ({"log.cleaner.dedupe.buffer.size": "1000"}, "at least 1MB per cleaner thread"),
        (
            {"log.cleaner.max.compaction.lag.ms": "1", "log.cleaner.min.compaction.lag.ms": "2"},
            "must not be greater",
        ),
        ({"node.id": "1", "broker.id": "2"}, "set and differ"),
        ({"listeners": "PLAINTEXT:9092"}, "expected NAME://HOST:PORT"),
        ({"listeners": "PLAINTEXT://:70000"}, "expected NAME://HOST:PORT"),
        ({"listeners": "INSIDE://:9092"}, "INSIDE has no security protocol"),
        ({"listeners": "PLAINTEXT://:1,PLAINTEXT://:2"}, "different name"),
        ({"listeners": "PLAINTEXT://:1,SSL://:1"}, "different address"),
        ({"listeners": "CONTROLLER://:9093"}, "only controller listeners"),
        ({"listener.security.protocol.map": "A:B"}, "expected NAME:PROTOCOL"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, "no client can connect"),
        ({"advertised.listeners": "SSL://host:9092"}, "listeners has no SSL"),
        ({"inter.broker.listener.name": "INSIDE"}, "no such name"),
        ({"group.min.session.timeout.ms": "10", "group.max.session.timeout.ms": "5"}, "must not be greater"),
        ({"group.consumer.session.timeout.ms": "10"}, "must not be greater"),
        ({"queued.max.request.bytes": "5"}, "at least socket.request.max.bytes"),
        ({"connections.max.idle.ms": "50"}, "must be less than connections.max.idle.ms"),
        ({"max.connections.per.ip.overrides": "10.0.0.1:5,host:"}, "expected HOST:COUNT"),
        ({"offsets.topic.compression.codec": "9"}, "4 zstd"),
    ],
)
def test_conflicting_values_are_rejected(properties: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError) as rejected:
        BrokerConfig(properties)
    assert problem in str(rejected.value)


def test_listeners_are_parsed_with_their_names_hosts_and_protocols() -> None:
    config = BrokerConfig(
        {
            "listeners": "inside://127.0.0.1:0,SSL://[::1]:9094,CONTROLLER://host:9093",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
            "advertised.listeners": "INSIDE://example.org:9092",
            "inter.broker.listener.name": "INSIDE",
        }
    )
    inside = Endpoint("INSIDE", "127.0.0.1", 0, "PLAINTEXT")
    assert config.broker_listeners == [inside, Endpoint("SSL", "::1", 9094, "SSL")]
    assert str(config.broker_listeners[1]) == "SSL://[::1]:9094"
    assert config.controller_listeners == [Endpoint("CONTROLLER", "host", 9093, "PLAINTEXT")]
    assert config.advertised_listeners == [inside._replace(host="example.org", port=9092)]


def test_a_listeners_config_falls_back_to_the_broker_config() -> None:
    config = BrokerConfig({"max.connections": "7", "listener.name.inside.max.connections": "3"})
    assert config["listener.name.inside.max.connections"] == 3
    assert config["listener.name.outside.max.connections"] == 7
    with pytest.raises(KeyError):
        config["bogus"]


def test_get_int_rejects_a_number_that_is_not_set() -> None:
    with pytest.raises(TypeError, match=r"log\.retention\.ms is not a number"):
        BrokerConfig().get_int("log.retention.ms")


def test_broker_id_and_node_id_are_the_same() -> None:
    assert BrokerConfig({"broker.id": "7"}).node_id == 7
    assert BrokerConfig({"node.id": "7"})["broker.id"] == 7


@pytest.mark.parametrize(
    ("name", "properties", "value"),
    [
        ("retention.ms", {}, 7 * 24 * 3_600_000),
        ("retention.ms", {"log.retention.hours": "1"}, 3_600_000),
        ("retention.ms", {"log.retention.hours": "1", "log.retention.minutes": "2"}, 120_000),
        ("retention.ms", {"log.retention.minutes": "2", "log.retention.ms": "3"}, 3),
        ("retention.ms", {"log.retention.hours": "-1"}, -1),
        ("segment.ms", {"log.roll.hours": "2"}, 7_200_000),
        ("segment.jitter.ms", {"log.roll.jitter.hours": "1"}, 3_600_000),
        ("flush.ms", {"log.flush.scheduler.interval.ms": "9"}, 9),
        ("max.message.bytes", {"message.max.bytes": "9"}, 9),
        ("cleanup.policy", {"log.cleanup.policy": "compact"}, ("compact",)),
        ("min.cleanable.dirty.ratio", {}, 0.5),
        ("remote.storage.enable", {}, False),
    ],
)
def test_a_topic_gets_the_brokers_value_in_its_own_unit(
    name: str, properties: dict[str, str], value: object
) -> None:
    broker = BrokerConfig(properties)
    assert topic_config_value(name, {}, broker) == value
    assert topic_config({}, broker)[name] == value


def test_a_topics_own_value_has_precedence() -> None:
    broker = BrokerConfig({"log.retention.ms": "5"})
    assert topic_config_value("retention.ms", {"retention.ms": "7"}, broker) == 7
    assert topic_config_value("retention.ms", {"retention.ms": "not a number"}, broker) == 5


@pytest.mark.parametrize(
    ("configs", "problem"),
    [
        ({"segment.ms": "5"}, None),
        ({"bogus": "1"}, "Unknown topic config name: bogus"),
        (
            {"min.compaction.lag.ms": "100", "max.compaction.lag.ms": "50"},
            "conflict topic config setting min.compaction.lag.ms (100) > max.compaction.lag.ms (50)",
        ),
        (
            {"remote.storage.enable": "true"},
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log "
            "storage.",
        ),
    ],
)
def test_a_topics_configs_are_checked_together(configs: dict[str, str], problem: str | None) -> None:
    assert validate_topic_configs(configs, BrokerConfig()) == problem


@pytest.mark.parametrize(
    ("configs", "problem"),
    [
        ({"consumer.session.timeout.ms": "50000", "share.isolation.level": "read_committed"}, None),
        (
            {"consumer.session.timeout.ms": "1"},
            "consumer.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms",
        ),
        (
            {"share.heartbeat.interval.ms": "99999"},
            "share.heartbeat.interval.ms must be less than or equal to group.share.max.heartbeat.interval.ms",
        ),
        (
            {"consumer.session.timeout.ms": "x"},
            "Invalid value x for configuration consumer.session.timeout.ms: Not a number of type INT",
        ),
    ],
)
def test_a_groups_configs_must_be_within_the_brokers_limits(
    configs: dict[str, str], problem: str | None
) -> None:
    assert validate_group_configs(configs, BrokerConfig()) == problem


@pytest.mark.parametrize(
    ("configs", "per_broker", "problem"),
    [
        ({"log.segment.bytes": "2000000", "any.plugin": "x"}, True, None),
        ({"listener.name.a.max.connections": "5"}, True, None),
        ({"listener.name.a.ssl.keystore.location": "x"}, True, None),
        (
            {"log.segment.bytes": "1"},
            True,
            "Invalid value 1 for configuration log.segment.bytes: Value must be at least 1048576",
        ),
        ({"node.id": "1"}, False, "Cannot update these configs dynamically: [node.id]"),
        (
            {"listeners": "PLAINTEXT://:1"},
            False,
            "Cannot update these configs at default cluster level, broker id must be specified: [listeners]",
        ),
        (
            {"ssl.keystore.location": "x"},
            True,
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            "[ssl.keystore.location]",
        ),
        (
            {"log.retention.ms": "0"},
            False,
            "log.retention.ms must be unlimited (-1) or, greater than or equal to 1",
        ),
    ],
)
def test_a_brokers_configs_change_only_as_far_as_their_scope_allows(
    configs: dict[str, str], per_broker: bool, problem: str | None
) -> None:
    assert validate_broker_configs(configs, BrokerConfig(), per_broker=per_broker) == problem


VOTERS = "1@a:9093,2@b:9093,3@c:9093"
CONTROLLER = "CONTROLLER://:9093"
BOTH = f"PLAINTEXT://:9092,{CONTROLLER}"


@pytest.mark.parametrize(
    "properties",
    [
        {"controller.quorum.voters": VOTERS, "listeners": BOTH},
        {"controller.quorum.voters": VOTERS, "listeners": CONTROLLER, "process.roles": "controller"},
        {"controller.quorum.voters": VOTERS, "process.roles": "broker", "node.id": "4"},
        {"controller.quorum.bootstrap.servers": "a:9093", "process.roles": "broker", "node.id": "4"},
        {"controller.quorum.voters": "1@a:9093"},
    ],
)
def test_a_node_of_a_quorum_may_have_either_role_or_both(properties: dict[str, str]) -> None:
    BrokerConfig(properties)


@pytest.mark.parametrize(
    ("properties", "error"),
    [
        (
            {"controller.quorum.voters": "2@a:1"},
            r"controller.quorum.voters \(2\) does not have this node \(1\)",
        ),
        ({"controller.quorum.voters": VOTERS}, "listeners has none of controller.listener.names"),
        ({"controller.quorum.voters": VOTERS, "process.roles": "broker"}, "but process.roles is broker"),
        ({"process.roles": "broker"}, "no controller is known"),
        ({"process.roles": "controller"}, "cannot reach this controller"),
    ],
)
def test_a_node_whose_roles_and_voters_contradict_each_other_is_rejected(
    properties: dict[str, str], error: str
) -> None:
    with pytest.raises(ConfigError, match=error):
        BrokerConfig(properties)
