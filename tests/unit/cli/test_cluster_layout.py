"""The plan of a local cluster: ids, roles, ports, properties, and what it refuses."""

import socket
from pathlib import Path

import pytest
import typer

from ottla.cli.cluster_layout import (
    NodeLayout,
    check_voters,
    plan_nodes,
    properties_of,
    properties_text,
)
from ottla.cli.output import CommandError
from ottla.model.config import BrokerConfig
from ottla.model.config.properties import parse_properties

HOST = "127.0.0.1"


def free_port() -> int:
    """The first of three ports in a row that are free at the moment."""
    for port in range(20_000, 50_000, 7):
        try:
            for offset in range(3):
                socket.create_server((HOST, port + offset)).close()
        except OSError:
            continue
        return port
    raise AssertionError("no ports are free")


def port_of(address: str | None) -> int:
    assert address is not None
    return int(address.rpartition(":")[2])


def test_every_broker_is_a_controller_by_default(tmp_path: Path) -> None:
    port = free_port()
    nodes = plan_nodes(tmp_path, 3, 0, HOST, port)
    assert [node.node_id for node in nodes] == [1, 2, 3]
    assert {node.roles for node in nodes} == {"broker,controller"}
    assert [node.broker_address for node in nodes] == [f"{HOST}:{port + index}" for index in range(3)]
    assert [node.directory for node in nodes] == [tmp_path / f"node-{number}" for number in (1, 2, 3)]
    assert len({node.controller_address for node in nodes}) == 3


def test_controllers_of_their_own_get_ids_and_ports_of_their_own(tmp_path: Path) -> None:
    nodes = plan_nodes(tmp_path, 2, 1, HOST, 0)
    assert [(node.node_id, node.roles) for node in nodes] == [
        (1, "broker"),
        (2, "broker"),
        (101, "controller"),
    ]
    ports = [port_of(node.broker_address or node.controller_address) for node in nodes]
    assert len(set(ports)) == 3
    assert 0 not in ports


def test_a_port_of_a_broker_that_is_in_use_is_named(tmp_path: Path) -> None:
    port = free_port()
    with (
        socket.create_server((HOST, port + 1)),
        pytest.raises(CommandError, match=rf"no node can listen on {HOST}:{port + 1}: .*--listen"),
    ):
        plan_nodes(tmp_path, 2, 0, HOST, port)


def test_ports_that_would_be_too_large_are_refused(tmp_path: Path) -> None:
    with pytest.raises(typer.BadParameter, match="the last would have port 65537"):
        plan_nodes(tmp_path, 3, 0, HOST, 65_535)


def test_a_controller_takes_any_port_if_the_preferred_one_is_in_use(tmp_path: Path) -> None:
    port = free_port()
    with socket.create_server((HOST, port + 10_000)):
        (node,) = plan_nodes(tmp_path, 1, 0, HOST, port)
    assert port_of(node.controller_address) != port + 10_000
    (node,) = plan_nodes(tmp_path, 1, 0, HOST, 60_123)
    assert 0 < port_of(node.controller_address) <= 65_535


COMBINED = [
    NodeLayout(1, Path("/c/node-1"), "h:9092", "h:19092"),
    NodeLayout(2, Path("/c/node-2"), "h:9093", "h:19093"),
]
SEPARATE = [
    NodeLayout(1, Path("/c/node-1"), "h:9092", None),
    NodeLayout(101, Path("/c/node-101"), None, "h:19092"),
]


def test_the_properties_of_a_combined_node() -> None:
    properties = properties_of(COMBINED[1], COMBINED, {"num.partitions": "4"})
    assert properties["process.roles"] == "broker,controller"
    assert properties["node.id"] == "2"
    assert properties["controller.quorum.voters"] == "1@h:19092,2@h:19093"
    assert properties["listeners"] == "PLAINTEXT://h:9093,CONTROLLER://h:19093"
    assert properties["log.dirs"] == "/c/node-2"
    assert properties["num.partitions"] == "4"
    assert BrokerConfig(properties).node_id == 2


def test_the_properties_of_separate_roles() -> None:
    broker, controller = (properties_of(node, SEPARATE, {}) for node in SEPARATE)
    assert broker["controller.quorum.voters"] == controller["controller.quorum.voters"] == "101@h:19092"
    assert broker["listeners"] == "PLAINTEXT://h:9092"
    assert controller["listeners"] == "CONTROLLER://h:19092"
    assert "inter.broker.listener.name" not in controller
    for properties in (broker, controller):
        BrokerConfig(properties)


def test_the_file_says_how_to_run_the_node_by_hand_and_reads_back_the_same() -> None:
    properties = {"log.dirs": "/a\\b", "node.id": "1"}
    text = properties_text(COMBINED[0], properties)
    assert "ottla serve --config /c/node-1/server.properties" in text
    assert parse_properties(text) == properties


@pytest.mark.parametrize("name", ["node.id", "listeners", "log.dirs", "controller.quorum.voters"])
def test_configs_that_differ_between_nodes_cannot_be_set_for_all(name: str) -> None:
    with pytest.raises(CommandError, match=f"--set {name}: .*Remove it"):
        properties_of(COMBINED[0], COMBINED, {name: "x"})


def test_other_voters_than_those_of_the_folder_are_refused(tmp_path: Path) -> None:
    for node in COMBINED:
        folder = tmp_path / f"node-{node.node_id}"
        folder.mkdir()
        (folder / "server.properties").write_text(properties_text(node, properties_of(node, COMBINED, {})))
    check_voters(tmp_path, COMBINED)
    with pytest.raises(CommandError, match=r"has the voters 1, 2, and these options ask for 101.*--data"):
        check_voters(tmp_path, SEPARATE)
    check_voters(tmp_path / "empty", SEPARATE)
