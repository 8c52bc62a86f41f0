"""Configs as DescribeConfigs reports them."""

from ottla.model.config import (
    BrokerConfig,
    ConfigEntry,
    ConfigSource,
    ConfigType,
    describe_broker_configs,
    describe_client_metrics_configs,
    describe_default_broker_configs,
    describe_group_configs,
    describe_topic_configs,
)

TOPIC, BROKER, ALL_BROKERS = (
    ConfigSource.DYNAMIC_TOPIC_CONFIG,
    ConfigSource.DYNAMIC_BROKER_CONFIG,
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
)
STATIC, DEFAULT = ConfigSource.STATIC_BROKER_CONFIG, ConfigSource.DEFAULT_CONFIG


def by_name(entries: list[ConfigEntry]) -> dict[str, ConfigEntry]:
    assert len({entry.name for entry in entries}) == len(entries)
    return {entry.name: entry for entry in entries}


def test_synonyms_are_in_order_of_precedence() -> None:
    broker = BrokerConfig({"log.retention.hours": "24"})
    broker.apply_dynamic(
        {"log.segment.bytes": "2000000"}, {"log.segment.bytes": "3000000", "log.retention.ms": "5"}
    )
    entries = by_name(describe_topic_configs({"retention.ms": "777"}, broker))
    assert entries["retention.ms"].value == "777"
    assert entries["retention.ms"].source is TOPIC
    assert entries["retention.ms"].synonyms == (
        ("retention.ms", "777", TOPIC),
        ("log.retention.ms", "5", ALL_BROKERS),
        ("log.retention.hours", "24", STATIC),
        ("log.retention.hours", "168", DEFAULT),
    )
    assert entries["segment.bytes"].source is BROKER
    assert entries["segment.bytes"].synonyms == (
        ("log.segment.bytes", "2000000", BROKER),
        ("log.segment.bytes", "3000000", ALL_BROKERS),
        ("log.segment.bytes", "1073741824", DEFAULT),
    )


def test_a_synonym_in_another_unit_is_not_shown_if_the_first_is_not_set() -> None:
    entry = by_name(describe_topic_configs({}, BrokerConfig({"log.roll.hours": "1"})))["segment.ms"]
    assert (entry.value, entry.source, entry.synonyms) == ("3600000", DEFAULT, ())
    assert entry.is_default


def test_only_the_names_that_were_asked_for_are_described() -> None:
    broker = BrokerConfig()
    topic = describe_topic_configs({}, broker, ["retention.ms", "bogus"])
    assert [entry.name for entry in topic] == ["retention.ms"]
    assert [entry.name for entry in describe_broker_configs(broker, ["num.partitions"])] == ["num.partitions"]


def test_internal_configs_are_shown_only_if_they_are_set() -> None:
    broker = BrokerConfig({"log.initial.task.delay.ms": "1"})
    described = by_name(describe_broker_configs(broker))
    assert described["log.initial.task.delay.ms"].value == "1"
    assert "unstable.api.versions.enable" not in described
    assert "internal.segment.bytes" not in by_name(describe_topic_configs({}, broker))
    assert "internal.segment.bytes" in by_name(
        describe_topic_configs({"internal.segment.bytes": "100"}, broker)
    )


def test_passwords_and_unknown_names_keep_their_values_hidden() -> None:
    broker = BrokerConfig({"ssl.keystore.password": "secret"})
    broker.apply_dynamic({"a.plugins.token": "secret"}, {"other": "secret"})
    described = by_name(describe_broker_configs(broker))
    for name, source in (
        ("ssl.keystore.password", STATIC),
        ("a.plugins.token", BROKER),
        ("other", ALL_BROKERS),
    ):
        entry = described[name]
        assert (entry.value, entry.is_sensitive, entry.source) == (None, True, source)
        assert entry.synonyms == ((name, None, source),)
    assert described["a.plugins.token"].type is ConfigType.UNKNOWN
    assert by_name(describe_default_broker_configs(broker))["other"].value is None


def test_broker_configs_show_whether_they_can_be_changed_dynamically() -> None:
    broker = BrokerConfig()
    broker.apply_dynamic(
        {"leader.replication.throttled.rate": "5", "listener.name.a.max.connections": "9"}, {}
    )
    described = by_name(describe_broker_configs(broker))
    assert described["num.partitions"].read_only
    assert not described["log.segment.bytes"].read_only
    assert described["leader.replication.throttled.rate"].synonyms == (
        ("leader.replication.throttled.rate", "5", BROKER),
    )
    assert described["listener.name.a.max.connections"].value == "9"
    assert described["listener.name.a.max.connections"].synonyms == (
        ("listener.name.a.max.connections", "9", BROKER),
        ("max.connections", "2147483647", DEFAULT),
    )


def test_the_resource_of_all_brokers_contains_only_values_set_for_all() -> None:
    broker = BrokerConfig({"log.segment.bytes": "2000000"})
    broker.apply_dynamic({"log.segment.bytes": "4000000"}, {"log.segment.bytes": "3000000"})
    (entry,) = describe_default_broker_configs(broker)
    assert (entry.name, entry.value, entry.source) == ("log.segment.bytes", "3000000", ALL_BROKERS)
    assert entry.synonyms == (("log.segment.bytes", "3000000", ALL_BROKERS),)
    assert describe_default_broker_configs(broker, ["num.partitions"]) == []


def test_a_groups_configs_fall_back_to_the_brokers() -> None:
    broker = BrokerConfig({"group.consumer.heartbeat.interval.ms": "6000"})
    described = by_name(describe_group_configs({"consumer.session.timeout.ms": "50000"}, broker))
    assert described["consumer.session.timeout.ms"].synonyms == (
        ("consumer.session.timeout.ms", "50000", ConfigSource.DYNAMIC_GROUP_CONFIG),
        ("group.consumer.session.timeout.ms", "45000", DEFAULT),
    )
    assert described["consumer.heartbeat.interval.ms"].value == "6000"
    assert described["share.isolation.level"].synonyms == (
        ("share.isolation.level", "read_uncommitted", DEFAULT),
    )


def test_a_client_metrics_subscription_shows_its_own_values_and_defaults() -> None:
    described = by_name(describe_client_metrics_configs({"metrics": "a, b,a"}))
    assert described["metrics"].synonyms == (("metrics", "a,b", ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG),)
    assert (described["interval.ms"].value, described["interval.ms"].synonyms) == ("300000", ())
