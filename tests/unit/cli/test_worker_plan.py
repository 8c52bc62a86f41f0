"""The configurations of the workers of one host."""

from pathlib import Path

import pytest

from ottla.cli.worker_plan import arguments_of, plan_workers
from ottla.model.config import BrokerConfig, ConfigError

HOST = {
    "node.id": "7",
    "listeners": "PLAINTEXT://0.0.0.0:9092,CONTROLLER://0.0.0.0:9093",
    "advertised.listeners": "PLAINTEXT://ottla-7.example.com:9092",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "7@ottla-7.example.com:9093,8@ottla-8.example.com:9093",
    "log.dirs": "/disk1,/disk2/",
    "broker.rack": "zone-a",
    "ottla.metrics.address": "127.0.0.1:9404",
}


def plan(count: int, **settings: str) -> list[BrokerConfig]:
    more = {name.replace("_", "."): value for name, value in settings.items()}
    return plan_workers(BrokerConfig(HOST | more), count)


def test_worker_1_is_the_node_that_runs_without_workers() -> None:
    first, *_ = plan(3)
    alone = BrokerConfig(HOST)
    for name in (
        "node.id",
        "process.roles",
        "advertised.listeners",
        "controller.quorum.voters",
        "broker.rack",
    ):
        assert first[name] == alone[name], name
    assert first.listeners == alone.listeners
    assert first.log_dirs == alone.log_dirs


def test_the_others_are_brokers_with_ids_ports_and_folders_of_their_own() -> None:
    _, second, third = plan(3)
    assert [each.node_id for each in (second, third)] == [1007, 2007]
    assert [each.get_list("process.roles") for each in (second, third)] == [("broker",)] * 2
    assert [str(each) for each in third.listeners] == ["PLAINTEXT://0.0.0.0:9112"]
    assert [str(each) for each in second.advertised_listeners] == ["PLAINTEXT://ottla-7.example.com:9102"]
    assert second.log_dirs == ("/disk1/workers/2", "/disk2/workers/2")
    assert second.get_str("ottla.metrics.address") == "127.0.0.1:9414"


def test_the_rack_stays_the_users_and_the_voters_are_shared() -> None:
    for worker in plan(3):
        assert worker.get_str("broker.rack") == "zone-a"
        assert worker["controller.quorum.voters"] == BrokerConfig(HOST)["controller.quorum.voters"]
        assert not worker.is_set("offsets.topic.replication.factor")


def test_a_host_that_is_a_cluster_of_its_own_gets_a_controller_listener_for_its_workers() -> None:
    config = BrokerConfig({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": "/d"})
    first, second = plan_workers(config, 2)
    (controller,) = first.controller_listeners
    assert controller.host == "127.0.0.1"
    voters = (f"1@127.0.0.1:{controller.port}",)
    assert first.get_list("controller.quorum.voters") == second.get_list("controller.quorum.voters") == voters
    assert second.controller_listeners == []
    assert [each.port for each in second.broker_listeners] == [0]
    # Two replicas on one host are no safer than one.
    assert second.get_int("offsets.topic.replication.factor") == 1
    chosen = BrokerConfig(dict(config.static) | {"offsets.topic.replication.factor": "2"})
    assert plan_workers(chosen, 2)[1].get_int("offsets.topic.replication.factor") == 2


def test_cordoned_directories_and_the_metadata_log_have_folders_of_the_worker() -> None:
    _, second = plan(2, cordoned_log_dirs="/disk2", metadata_log_dir="/meta")
    assert second.get_list("cordoned.log.dirs") == ("/disk2/workers/2",)
    assert second.metadata_log_dir == "/meta/workers/2"
    assert plan(2, cordoned_log_dirs="*")[1].get_list("cordoned.log.dirs") == ("*",)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"node.id": "1000", "controller.quorum.voters": "1000@h:1"}, "it must be below 1000"),
        ({"listeners": "PLAINTEXT://:65530,CONTROLLER://:9093"}, "worker 2 would have port 65540"),
        (
            {"process.roles": "controller", "listeners": "CONTROLLER://:9093", "advertised.listeners": ""},
            "--workers is for brokers",
        ),
        ({"ottla.metrics.address": "127.0.0.1:65535"}, "worker 2 would have port 65545"),
    ],
)
def test_a_configuration_that_cannot_have_workers_is_refused(settings: dict[str, str], reason: str) -> None:
    config = BrokerConfig({name: value for name, value in (HOST | settings).items() if value})
    with pytest.raises(ConfigError, match=reason):
        plan_workers(config, 2)


def test_a_worker_gets_its_configuration_as_options(tmp_path: Path) -> None:
    from ottla.cli.serve import broker_config, parser

    for worker in plan(2, log_dirs=str(tmp_path)):
        options = parser().parse_args(list(arguments_of(worker)))
        assert broker_config(options).static == worker.static
