"""Config values as text and as Python values, and their validation."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from ottla.model.config import ConfigType, ResourceType, definition_of, is_list, validate
from ottla.model.config.definition import format_value, parse_value
from ottla.model.config.definitions import (
    BROKER_CONFIGS,
    CLIENT_METRICS_CONFIGS,
    DYNAMIC_ONLY,
    GROUP_CONFIGS,
    TOPIC_CONFIGS,
)

ALL_CONFIGS = [
    *TOPIC_CONFIGS.values(),
    *BROKER_CONFIGS.values(),
    *GROUP_CONFIGS.values(),
    *CLIENT_METRICS_CONFIGS.values(),
]


def test_every_default_is_valid_and_survives_a_round_trip() -> None:
    for config in ALL_CONFIGS:
        text = config.default_text()
        if text is not None:
            assert config.parse(text) == config.default, config.name


def test_each_config_is_defined_once() -> None:
    assert len(ALL_CONFIGS) == len(TOPIC_CONFIGS) + len(BROKER_CONFIGS) + len(GROUP_CONFIGS) + len(
        CLIENT_METRICS_CONFIGS
    )
    kafka_topic = [name for name in TOPIC_CONFIGS if not name.startswith("ottla.")]
    assert (len(kafka_topic), len(GROUP_CONFIGS), len(CLIENT_METRICS_CONFIGS)) == (34, 17, 3)
    kafka_broker = [name for name in BROKER_CONFIGS if not name.startswith("ottla.")]
    assert len(kafka_broker) - len(DYNAMIC_ONLY) == 360


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        (ConfigType.INT, " +5 ", 5),
        (ConfigType.LONG, "-9223372036854775808", -(2**63)),
        (ConfigType.BOOLEAN, " TRUE ", True),
        (ConfigType.DOUBLE, "0.25f", 0.25),
        (ConfigType.DOUBLE, "1e-1", 0.1),
        (ConfigType.LIST, "", ()),
        (ConfigType.LIST, " a , b ", ("a", "b")),
        (ConfigType.STRING, " gzip ", "gzip"),
        (ConfigType.PASSWORD, " secret ", " secret "),
        (ConfigType.CLASS, None, None),
    ],
)
def test_text_is_read_as_kafka_reads_it(type_: ConfigType, text: str | None, value: object) -> None:
    assert parse_value("x", text, type_) == value


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        (ConfigType.INT, "2147483648"),
        (ConfigType.INT, "1_000"),
        (ConfigType.INT, "1.5"),
        (ConfigType.INT, "0x10"),
        (ConfigType.INT, ""),
        (ConfigType.SHORT, "70000"),
        (ConfigType.LONG, "9223372036854775808"),
        (ConfigType.DOUBLE, "half"),
    ],
)
def test_a_number_of_another_type_is_rejected_with_its_name_and_type(type_: ConfigType, text: str) -> None:
    with pytest.raises(
        ValueError, match=f"Invalid value {text} for configuration x: Not a number of type {type_.name}"
    ):
        parse_value("x", text, type_)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"),
        (1.0, "1.0"),
        (2147483647.0, "2.147483647E9"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (0.0001, "1.0E-4"),
        (0.00025, "2.5E-4"),
        (1e7, "1.0E7"),
        (-1.5e22, "-1.5E22"),
        (123456789.125, "1.23456789125E8"),
        (float("nan"), "NaN"),
    ],
)
def test_doubles_are_written_as_java_writes_them(value: float, text: str) -> None:
    assert format_value(value) == text


@examples(200)
@given(st.floats(allow_nan=False))
def test_every_double_survives_a_round_trip(value: float) -> None:
    assert parse_value("x", format_value(value), ConfigType.DOUBLE) == value


CODECS = "uncompressed, zstd, lz4, snappy, gzip, producer"
MIGRATIONS = "DISABLED, DOWNGRADE, UPGRADE, BIDIRECTIONAL"


@pytest.mark.parametrize(
    ("resource", "name", "value", "reason"),
    [
        (ResourceType.TOPIC, "segment.bytes", "1", "Value must be at least 1048576"),
        (ResourceType.TOPIC, "min.cleanable.dirty.ratio", "1.5", "Value must be no more than 1"),
        (ResourceType.TOPIC, "compression.gzip.level", "10", "Value must be between 1 and 9 or equal to -1"),
        (ResourceType.TOPIC, "compression.type", "none", f"String must be one of: {CODECS}"),
        (ResourceType.TOPIC, "preallocate", "yes", "Expected value to be either true or false"),
        (ResourceType.TOPIC, "cleanup.policy", "Delete", "String must be one of: compact, delete"),
        (
            ResourceType.GROUP,
            "share.isolation.level",
            "x",
            "String must be one of: read_committed, read_uncommitted",
        ),
        (
            ResourceType.GROUP,
            "share.auto.offset.reset",
            "by_duration:-PT1H",
            "Invalid value `by_duration:-PT1H` for configuration share.auto.offset.reset. The value must be either "
            "'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'.",
        ),
        (
            ResourceType.BROKER,
            "group.consumer.migration.policy",
            "abc",
            f"String must be one of (case insensitive): {MIGRATIONS}",
        ),
        (ResourceType.BROKER, "remote.log.storage.manager.class.name", "", "String must be non-empty"),
    ],
)
def test_a_rejected_text_gets_the_reason_that_kafka_returns(
    resource: ResourceType, name: str, value: str, reason: str
) -> None:
    assert validate(resource, name, value) == f"Invalid value {value} for configuration {name}: {reason}"


@pytest.mark.parametrize(
    ("resource", "name", "value", "sentence"),
    [
        (ResourceType.TOPIC, "cleanup.policy", ",", "'cleanup.policy' values must not be empty."),
        (ResourceType.TOPIC, "cleanup.policy", "delete,", "'cleanup.policy' values must not be empty."),
        (ResourceType.TOPIC, "leader.replication.throttled.replicas", "0:1,x", "Invalid value [0:1, x] for"),
        (ResourceType.TOPIC, "bogus", "1", "Unknown topic config name: bogus"),
        (ResourceType.GROUP, "bogus", "1", "Unknown group config name: bogus"),
        (
            ResourceType.CLIENT_METRICS,
            "interval.ms",
            "99",
            "interval must be between 100 and 3600000 (1 hour)",
        ),
        (ResourceType.CLIENT_METRICS, "match", "client_id=[", "Illegal client matching pattern: client_id=["),
        (ResourceType.CLIENT_METRICS, "match", "color=red", "Illegal client matching pattern: color=red"),
        (ResourceType.CLIENT_METRICS, "bogus", "1", "Unknown client metrics configuration: bogus"),
        (ResourceType.BROKER, "process.roles", "", "Valid values include: [broker, controller]"),
        (ResourceType.BROKER, "log.dirs", "", "Valid values include: any non-empty value"),
        (ResourceType.BROKER, "controller.quorum.voters", "x", "in the form `{id}@{host}:{port}`."),
    ],
)
def test_a_rejected_value_gets_kafkas_message(
    resource: ResourceType, name: str, value: str, sentence: str
) -> None:
    assert sentence in (validate(resource, name, value) or "")


@pytest.mark.parametrize(
    ("resource", "name", "value"),
    [
        (ResourceType.TOPIC, "cleanup.policy", "compact , delete"),
        (ResourceType.TOPIC, "cleanup.policy", ""),
        (ResourceType.TOPIC, "cleanup.policy", "delete,delete"),
        (ResourceType.TOPIC, "retention.bytes", "-5"),
        (ResourceType.TOPIC, "leader.replication.throttled.replicas", "*"),
        (ResourceType.GROUP, "share.auto.offset.reset", "by_duration:P1DT2H3.5S"),
        (ResourceType.CLIENT_METRICS, "match", "client_id=app-.*,client_source_port=9.*"),
        (ResourceType.BROKER, "a.plugins.own.config", "anything"),
        (ResourceType.BROKER, "group.consumer.migration.policy", "upgrade"),
        (ResourceType.BROKER, "controller.quorum.voters", "1@a:1,2@[::1]:2"),
        (ResourceType.BROKER, "log.dirs", "/a,/b"),
    ],
)
def test_a_value_that_kafka_accepts_is_valid(resource: ResourceType, name: str, value: str) -> None:
    assert validate(resource, name, value) is None


def test_append_and_subtract_are_for_lists_only() -> None:
    assert is_list(ResourceType.TOPIC, "cleanup.policy")
    assert not is_list(ResourceType.TOPIC, "segment.bytes")
    assert not is_list(ResourceType.TOPIC, "bogus")


def test_a_listeners_config_has_the_definition_of_the_broker_config() -> None:
    location = definition_of(ResourceType.BROKER, "listener.name.internal.ssl.keystore.location")
    jaas = definition_of(ResourceType.BROKER, "listener.name.internal.plain.sasl.jaas.config")
    assert location is BROKER_CONFIGS["ssl.keystore.location"]
    assert jaas is BROKER_CONFIGS["sasl.jaas.config"]
    assert definition_of(99, "segment.bytes") is None


@pytest.mark.timeout(60)
@pytest.mark.parametrize("text", [" ", "1", "a", ",", ".", "1.", "0:", "\t,", "-"])
def test_a_value_of_any_length_is_checked_in_linear_time(text: str) -> None:
    """A pattern that matches the same text in two ways would take hours for these."""
    value = "x" + text * (400_000 // len(text)) + "x"
    numbers = value[1:]
    seen = set()
    for definition in ALL_CONFIGS:
        if (kind := (definition.type, repr(definition.valid))) not in seen:
            seen.add(kind)
            for hostile in (value, numbers):
                with contextlib.suppress(ValueError):
                    definition.parse(hostile)
    for hostile in (value, numbers, f"client_id={value}"):
        validate(ResourceType.CLIENT_METRICS, "match", hostile)
