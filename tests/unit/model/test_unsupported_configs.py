"""Each config is used by the code, or listed as unsupported: it is rejected or has no effect."""

import re
from pathlib import Path

import pytest

from ottla.model.config import (
    BrokerConfig,
    ConfigDef,
    ResourceType,
    unsupported_change_error,
    unsupported_config,
    unsupported_errors,
)
from ottla.model.config.definitions import (
    BROKER_CONFIGS,
    CLIENT_METRICS_CONFIGS,
    GROUP_CONFIGS,
    TOPIC_CONFIGS,
)
from ottla.model.config.synonyms import GROUP_SYNONYMS, TOPIC_SYNONYMS
from ottla.model.config.unsupported import unsupported_names

SOURCE = Path(__file__).parents[3] / "src" / "ottla"
# The folders where configs take effect. Checks of values, clients and the simulation do not count, nor does a
# name followed by a value, which sets it.
USERS = ("broker", "cli", "core", "env", "storage")
USING_MODULES = ("model/config/metrics_address.py", "model/config/broker.py", "model/config/unsupported.py")
CONFIGS = {
    ResourceType.TOPIC: TOPIC_CONFIGS,
    ResourceType.BROKER: BROKER_CONFIGS,
    ResourceType.GROUP: GROUP_CONFIGS,
    ResourceType.CLIENT_METRICS: CLIENT_METRICS_CONFIGS,
}
EVERY_CONFIG = [(kind, config) for kind, configs in CONFIGS.items() for config in configs.values()]


def names_in_the_source() -> set[str]:
    files = [path for folder in USERS for path in (SOURCE / folder).rglob("*.py")]
    files += [SOURCE / module for module in USING_MODULES]
    return {name for path in files for name in re.findall(r'"([a-z0-9.]+)"(?!:)', path.read_text())}


IN_SOURCE = names_in_the_source()


def is_used(kind: ResourceType, name: str) -> bool:
    if name in IN_SOURCE:
        return True
    if kind is not ResourceType.BROKER:
        return False
    behind_topics = {
        synonym for topic, synonyms in TOPIC_SYNONYMS.items() if topic in IN_SOURCE for synonym, _ in synonyms
    }
    behind_groups = {synonym for group, synonym in GROUP_SYNONYMS.items() if group in IN_SOURCE}
    bounds_of_groups = {
        f"group.consumer.{bound}.{group.removeprefix('consumer.')}"
        for group in GROUP_SYNONYMS
        if group in IN_SOURCE
        for bound in ("min", "max")
    }
    return name in behind_topics | behind_groups | bounds_of_groups


@pytest.mark.parametrize(
    ("kind", "config"), EVERY_CONFIG, ids=[f"{k.name}-{c.name}" for k, c in EVERY_CONFIG]
)
def test_every_config_is_used_or_listed_as_unsupported(kind: ResourceType, config: ConfigDef) -> None:
    unsupported = unsupported_config(kind, config.name)
    if unsupported is None:
        assert is_used(kind, config.name), f"{config.name} is not used: use it, or add it to unsupported.py"
    elif not unsupported.is_rejected:
        assert not is_used(kind, config.name), f"{config.name} is used: remove it from unsupported.py"
    if unsupported is not None:
        assert unsupported.reason
        assert bool(unsupported.remedy) == unsupported.is_rejected


def test_unsupported_names_are_names_of_configs() -> None:
    of_plugins = {
        "super.users",
        "allow.everyone.if.no.acl.found",
        "rsm.config.",
        "rlmm.config.",
        "config.providers.",
    }
    for kind, configs in CONFIGS.items():
        for name in unsupported_names(kind):
            is_prefix_of_one = name.endswith(".") and any(config.startswith(name) for config in configs)
            assert name in configs or is_prefix_of_one or name in of_plugins, name


REJECTED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "alter.config.policy.class.name": "a.Policy",
    "create.topic.policy.class.name": "a.Policy",
    "client.quota.callback.class": "a.Callback",
    "config.providers": "file",
    "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
    "principal.builder.class": "a.Builder",
    "security.providers": "a.Provider",
    "security.inter.broker.protocol": "SSL",
    "ssl.client.auth": "required",
    "ssl.keystore.location": "/keys",
    "listener.name.inside.ssl.keystore.location": "/keys",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.inside.plain.sasl.jaas.config": "hunter2",
    "connections.max.reauth.ms": "1000",
    "delegation.token.secret.key": "hunter2",
    "remote.log.storage.system.enable": "true",
    "rsm.config.bucket": "a",
    "group.consumer.assignors": "uniform,a.Assignor",
}


@pytest.mark.parametrize("name", REJECTED)
def test_an_unsupported_config_is_rejected_with_its_name_and_a_remedy(name: str) -> None:
    (error,) = unsupported_errors(BrokerConfig({name: REJECTED[name]}))
    assert error.startswith(name)
    assert "not supported" in error or "not run" in error
    assert re.search(r"\. (Remove|Set|Name)[^.]*.*\.$", error), error
    assert "hunter2" not in error


@pytest.mark.parametrize("name", ["super.users", "allow.everyone.if.no.acl.found"])
def test_configs_of_kafkas_authorizer_are_rejected_with_the_reason(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is set, but authorization is not supported"):
        BrokerConfig({name: "User:admin"})


def test_a_rejected_config_may_have_its_default() -> None:
    defaults = {
        config.name: text
        for config in BROKER_CONFIGS.values()
        if (text := config.default_text()) is not None
        and (unsupported := unsupported_config(ResourceType.BROKER, config.name)) is not None
        and unsupported.is_rejected
    }
    assert len(defaults) > 40
    assert unsupported_errors(BrokerConfig({**defaults, "delegation.token.secret.key": ""})) == []


def test_the_file_that_comes_with_kafka_is_accepted() -> None:
    config = BrokerConfig.load(
        """
        process.roles=broker,controller
        node.id=1
        controller.quorum.bootstrap.servers=localhost:9093
        listeners=PLAINTEXT://:9092,CONTROLLER://:9093
        inter.broker.listener.name=PLAINTEXT
        advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
        controller.listener.names=CONTROLLER
        listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
        num.network.threads=3
        num.io.threads=8
        socket.send.buffer.bytes=102400
        socket.receive.buffer.bytes=102400
        socket.request.max.bytes=104857600
        log.dirs=/tmp/kraft-combined-logs
        num.partitions=1
        num.recovery.threads.per.data.dir=1
        offsets.topic.replication.factor=1
        transaction.state.log.replication.factor=1
        transaction.state.log.min.isr=1
        log.retention.hours=168
        log.segment.bytes=1073741824
        log.retention.check.interval.ms=300000
        """
    )
    assert unsupported_errors(config) == []


def test_a_listener_with_tls_or_sasl_is_rejected() -> None:
    for protocol in ("SSL", "SASL_PLAINTEXT", "SASL_SSL"):
        (error,) = unsupported_errors(BrokerConfig({"listeners": f"{protocol}://:9092"}))
        assert f"listener {protocol}://:9092 asks for {protocol}, but TLS and SASL are not supported" in error


def test_only_changed_values_of_unsupported_configs_are_rejected() -> None:
    change = {"config.providers": "file", "log.retention.ms": "5"}
    error = unsupported_change_error(ResourceType.BROKER, change, change.keys())
    assert error is not None
    assert "config providers are not supported" in error
    assert unsupported_change_error(ResourceType.BROKER, change, ["log.retention.ms"]) is None
    assert unsupported_change_error(ResourceType.BROKER, {}, ["config.providers"]) is None


def test_listeners_cannot_be_changed_while_the_broker_runs() -> None:
    for name in ("listeners", "listener.security.protocol.map"):
        error = unsupported_change_error(ResourceType.BROKER, {name: "PLAINTEXT://:9093"}, [name])
        assert error is not None
        assert f"{name} cannot be changed while the broker runs" in error
        assert error.endswith("and restart the broker.")


def test_topic_configs_of_tiered_storage_are_rejected() -> None:
    for name in ("remote.storage.enable", "remote.log.copy.disable", "remote.log.delete.on.disable"):
        error = unsupported_change_error(ResourceType.TOPIC, {name: "true"}, [name])
        assert error is not None
        assert "tiered storage is not supported" in error
        assert unsupported_change_error(ResourceType.TOPIC, {name: "false"}, [name]) is None
