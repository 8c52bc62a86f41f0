"""`kafka.*` options become librdkafka's properties, also those that were written for Java's clients."""

import pytest
from confluent_kafka.admin import AdminClient

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.spark.clients import kafka_properties, make_client

SERVERS = {"kafka.bootstrap.servers": "localhost:1"}


def test_properties_lose_their_prefix_and_other_options_are_not_among_them() -> None:
    assert kafka_properties({**SERVERS, "subscribe": "a", "kafka.client.id": "me"}) == {
        "bootstrap.servers": "localhost:1",
        "client.id": "me",
    }


def test_a_java_property_gets_librdkafkas_name() -> None:
    assert kafka_properties({**SERVERS, "kafka.fetch.max.wait.ms": "7"})["fetch.wait.max.ms"] == "7"


def test_username_and_password_are_read_from_a_jaas_config() -> None:
    line = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password="a\\"b";'
    properties = kafka_properties({**SERVERS, "kafka.sasl.jaas.config": line})
    assert (properties["sasl.username"], properties["sasl.password"]) == ("me", 'a"b')


def test_a_jaas_config_without_credentials_is_rejected() -> None:
    with pytest.raises(PipelineError, match=r"Set `kafka\.sasl\.username`"):
        kafka_properties(
            {**SERVERS, "kafka.sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required;"}
        )


def test_bootstrap_servers_are_required() -> None:
    with pytest.raises(PipelineError, match=r"`kafka\.bootstrap\.servers` is missing"):
        kafka_properties({"subscribe": "a"})


def test_a_property_that_only_java_has_is_left_out_with_a_warning() -> None:
    with pytest.warns(UserWarning, match=r"librdkafka has no property default\.api\.timeout\.ms"):
        make_client(AdminClient, {"bootstrap.servers": "localhost:1", "default.api.timeout.ms": "7"})


def test_an_invalid_value_is_reported_with_librdkafkas_reason() -> None:
    with pytest.raises(PipelineError, match=r"security\.protocol"):
        make_client(AdminClient, {"bootstrap.servers": "localhost:1", "security.protocol": "none"})
