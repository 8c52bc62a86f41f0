"""The first voters of a cluster, as `ottla format` writes them (KIP-853)."""

import pytest

from ottla.broker.formatter import InitialControllers, format_directories, parse_initial_controllers
from ottla.broker.quorum.membership_records import membership_of_snapshot
from ottla.broker.quorum.quorum_state import read_quorum_state, write_quorum_state
from ottla.broker.quorum.voters import bootstrap_servers, is_its_own_quorum
from ottla.broker.quorum_node import QuorumNode
from ottla.core.raft.ready import HardState
from ottla.core.raft.voter_set import KRaftVersion, Voter, VoterEndpoint, VoterSet
from ottla.model.config import BrokerConfig
from ottla.model.ids import uuid_from_string
from ottla.rpc.addresses import Address
from ottla.sim.env import World, simulate
from ottla.storage.log_dirs import LogDirs
from ottla.storage.meta_properties import MetaProperties, UnusableDirectoryError, write_meta_properties

IDS = ("3Db5QLSqSZieL3rJBUUegA", "mZEyi6ATSICfKuV2kSlc_g")
LIST = f"1@one:9093:{IDS[0]},2@[::1]:9094:{IDS[1]}"
METADATA = "/data/__cluster_metadata-0"
SNAPSHOT = f"{METADATA}/00000000000000000000-0000000000.checkpoint"


def config_of(node_id: int = 1, **more: str) -> BrokerConfig:
    return BrokerConfig(
        {
            "node.id": str(node_id),
            "process.roles": "controller",
            "listeners": "CONTROLLER://one:9093",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": "one:9093,two:9093",
            "log.dirs": "/data",
        }
        | {name.replace("_", "."): value for name, value in more.items()}
    )


def test_the_list_of_controllers_is_that_of_kafka_storage() -> None:
    first, second = parse_initial_controllers(LIST).voters
    assert first == Voter(1, uuid_from_string(IDS[0]), (VoterEndpoint("", "one", 9093),))
    assert second == Voter(2, uuid_from_string(IDS[1]), (VoterEndpoint("", "::1", 9094),))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1@one:9093",
        f"@one:9093:{IDS[0]}",
        f"1@one:70000:{IDS[0]}",
        f"1@:9093:{IDS[0]}",
        "1@one:9093:short",
        f"1@one:9093:{IDS[0]},1@two:9093:{IDS[1]}",
        f"1@one:9093:{IDS[0]},2@two:9093:{IDS[0]}",
    ],
)
def test_a_list_that_is_none_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="controller"):
        parse_initial_controllers(text)


def test_the_first_voters_are_in_the_bootstrap_snapshot() -> None:
    async def main(world: World) -> None:
        disk = world.new_disk("/data")
        env = world.process("node", disk).env
        (done,) = format_directories(
            env, config_of(), cluster_id="c", initial=parse_initial_controllers(LIST)
        )
        assert done.meta.directory_id == uuid_from_string(IDS[0])
        level, voters = membership_of_snapshot(disk.read_bytes(SNAPSHOT))
        assert level == KRaftVersion(1)
        assert isinstance(voters, VoterSet)
        assert voters.get(2) == Voter(
            2, uuid_from_string(IDS[1]), (VoterEndpoint("CONTROLLER", "::1", 9094),), (0, 1)
        )
        assert not is_its_own_quorum(config_of(), disk)

    simulate(main, 1)


def test_a_standalone_controller_is_the_only_voter() -> None:
    async def main(world: World) -> None:
        disk = world.new_disk("/data")
        env = world.process("node", disk).env
        initial = InitialControllers(is_standalone=True)
        (done,) = format_directories(env, config_of(), cluster_id="c", initial=initial)
        _, voters = membership_of_snapshot(disk.read_bytes(SNAPSHOT))
        endpoint = VoterEndpoint("CONTROLLER", "one", 9093)
        assert voters == VoterSet((Voter(1, done.meta.directory_id, (endpoint,), (0, 1)),))

    simulate(main, 1)


def test_a_controller_with_other_servers_waits_to_be_added() -> None:
    async def main(world: World) -> None:
        disk = world.new_disk("/data")
        env = world.process("node", disk).env
        format_directories(env, config_of(2), cluster_id="c")
        assert not disk.exists(SNAPSHOT)
        assert not is_its_own_quorum(config_of(2), disk)
        same_port = {"controller_quorum_bootstrap_servers": "elsewhere:9093"}
        assert not is_its_own_quorum(config_of(2, **same_port), disk)

    simulate(main, 1)


def test_a_controller_that_is_the_only_server_is_its_own_quorum() -> None:
    async def main(world: World) -> None:
        disk = world.new_disk("/data")
        for server in ("one:9093", "localhost:9093"):
            assert is_its_own_quorum(config_of(controller_quorum_bootstrap_servers=server), disk)

    simulate(main, 1)


def test_a_node_that_was_its_own_quorum_stays_it() -> None:
    async def main(world: World) -> None:
        disk = world.new_disk("/data")
        disk.make_dirs(METADATA)
        write_quorum_state(disk, METADATA, HardState(3, 1), (1,))
        assert is_its_own_quorum(config_of(), disk)
        write_quorum_state(disk, METADATA, HardState(3, 1), None)
        assert not is_its_own_quorum(config_of(), disk)

    simulate(main, 1)


@pytest.mark.parametrize("voters", [(1, 2, 3), (2,), ()])
def test_a_voter_of_a_static_quorum_never_becomes_a_quorum_of_its_own(voters: tuple[int, ...]) -> None:
    """Also if controller.quorum.voters is replaced by the bootstrap servers before kraft.version is raised."""

    async def main(world: World) -> None:
        disk = world.new_disk("/data")
        disk.make_dirs(METADATA)
        write_quorum_state(disk, METADATA, HardState(3, 1), voters)
        assert not is_its_own_quorum(config_of(), disk)
        assert not is_its_own_quorum(config_of(controller_quorum_bootstrap_servers="one:9093"), disk)
        alone = config_of(controller_quorum_bootstrap_servers="")
        assert not is_its_own_quorum(alone, disk)
        env = world.process("node", disk).env
        write_meta_properties(disk, "/data", MetaProperties(IDS[1], 1, uuid_from_string(IDS[0])))
        with pytest.raises(UnusableDirectoryError, match=r"Set controller\.quorum\.voters"):
            QuorumNode(alone, env, lambda error: None, LogDirs(disk, ["/data"]))

    simulate(main, 1)


@pytest.mark.parametrize("servers", ["one:9093", ""])
def test_a_replaced_controller_that_is_the_only_server_does_not_begin_an_empty_cluster(servers: str) -> None:
    """All nodes may know the cluster by the address of its first controller, whose disk was replaced."""

    async def main(world: World) -> None:
        disk = world.new_disk("/data")
        env = world.process("node", disk).env
        config = config_of(controller_quorum_bootstrap_servers=servers)
        format_directories(env, config, cluster_id="c", initial=InitialControllers())
        assert not disk.exists(SNAPSHOT)
        assert not is_its_own_quorum(config, disk)
        assert read_quorum_state(disk, METADATA) == HardState()

    simulate(main, 1)


def test_bootstrap_servers_have_negative_ids_as_in_kafka() -> None:
    assert bootstrap_servers(config_of()) == {-2: Address("one", 9093), -3: Address("two", 9093)}
