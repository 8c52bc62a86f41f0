"""AddRaftVoter and RemoveRaftVoter at controllers that talk over the simulated network (KIP-853)."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

from kio.schema.add_raft_voter.v1.request import AddRaftVoterRequest, Listener
from kio.schema.remove_raft_voter.v0.request import RemoveRaftVoterRequest
from kio.schema.update_features.v2.request import FeatureUpdateKey, UpdateFeaturesRequest

from ottla.broker.formatter import InitialControllers, format_directories
from ottla.broker.quorum.quorum import Quorum
from ottla.broker.quorum_node import ControllerNode
from ottla.core.controller.commands import FeatureUpgradeType
from ottla.core.raft.voter_set import VoterEndpoint
from ottla.env import Env
from ottla.model.config import BrokerConfig
from ottla.model.errors import ErrorCode
from ottla.rpc.addresses import Address
from ottla.sim.client import SimClient
from ottla.sim.disk import SimDisk
from ottla.sim.env import SimProcess, World, simulate

CLUSTER_ID = "cluster-of-the-test"
NODES = (1, 2, 3)
PORT = 9093


def config_of(node_id: int, **more: str) -> BrokerConfig:
    return BrokerConfig(
        {
            "node.id": str(node_id),
            "process.roles": "controller",
            "listeners": f"CONTROLLER://node{node_id}:{PORT}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": f"node1:{PORT},node2:{PORT}",
            "log.dirs": "/data",
        }
        | {name.replace("_", "."): value for name, value in more.items()}
    )


async def wait_until(condition: Callable[[], bool]) -> None:
    """Within a minute of virtual time."""
    for _ in range(600):
        if condition():
            return
        await asyncio.sleep(0.1)
    raise TimeoutError


class Controllers:
    """Controller 1 is the only voter; the others are observers. Static voters are those of the config instead."""

    def __init__(self, world: World, *, is_static: bool = False) -> None:
        self.world = world
        self.is_static = is_static
        self.disks: dict[int, SimDisk] = {node_id: world.new_disk("/data") for node_id in NODES}
        self.nodes: dict[int, ControllerNode] = {}
        self.processes: dict[int, SimProcess] = {}
        self.directories: dict[int, UUID] = {}

    async def start(self, node_id: int, **config: str) -> None:
        self.processes[node_id] = self.world.process(f"node{node_id}", self.disks[node_id])
        await self.processes[node_id].run(lambda env: self._start(env, config_of(node_id, **config)))

    async def _start(self, env: Env, config: BrokerConfig) -> None:
        if config.node_id not in self.directories:
            is_first = config.node_id == 1 and not self.is_static
            initial = InitialControllers(is_standalone=True) if is_first else None
            (done,) = format_directories(env, config, cluster_id=CLUSTER_ID, initial=initial)
            self.directories[config.node_id] = done.meta.directory_id
        self.nodes[config.node_id] = await ControllerNode.start(config, env)

    async def kill(self, node_id: int) -> None:
        await self.processes.pop(node_id).kill()
        del self.nodes[node_id]
        self.disks[node_id] = self.disks[node_id].reopen()

    def quorum(self, node_id: int) -> Quorum:
        return self.nodes[node_id]._node.quorum

    async def ask(self, node_id: int, request: Any) -> Any:
        client = SimClient(self.world.network.host("client"), Address(f"node{node_id}", PORT), "client")
        return await client.request(request)

    def addition(self, node_id: int, **fields: Any) -> AddRaftVoterRequest:
        defaults: dict[str, Any] = {
            "cluster_id": CLUSTER_ID,
            "timeout": timedelta(seconds=10),
            "voter_id": node_id,
            "voter_directory_id": self.directories.get(node_id, UUID(int=9)),
            "listeners": (Listener(name="CONTROLLER", host=f"node{node_id}", port=PORT),),
            "ack_when_committed": True,
        }
        return AddRaftVoterRequest(**(defaults | fields))

    def removal(self, node_id: int, **fields: Any) -> RemoveRaftVoterRequest:
        defaults: dict[str, Any] = {
            "cluster_id": CLUSTER_ID,
            "voter_id": node_id,
            "voter_directory_id": self.directories[node_id],
        }
        return RemoveRaftVoterRequest(**(defaults | fields))

    async def wait_for_voters(self, *voters: int) -> None:
        await wait_until(lambda: all(self.quorum(node_id).voters == voters for node_id in self.nodes))

    async def leader(self) -> int:
        await wait_until(lambda: any(self.quorum(node_id).is_active for node_id in self.nodes))
        return next(node_id for node_id in self.nodes if self.quorum(node_id).is_active)


def with_controllers(test: Callable[[Controllers], Awaitable[None]], **config: str) -> None:
    async def main(world: World) -> None:
        controllers = Controllers(world)
        for node_id in NODES:
            await controllers.start(node_id, **config)
        async with asyncio.timeout(3600):
            await test(controllers)

    simulate(main, 1)


def test_observers_become_voters_and_a_leader_removes_itself() -> None:
    async def check(controllers: Controllers) -> None:
        for node_id in (2, 3):
            response = await controllers.ask(1, controllers.addition(node_id))
            assert (response.error_code, response.error_message) == (ErrorCode.none, None)
        await controllers.wait_for_voters(1, 2, 3)
        assert (await controllers.ask(1, controllers.removal(1))).error_code is ErrorCode.none
        await controllers.wait_for_voters(2, 3)
        assert await controllers.leader() in (2, 3)

    with_controllers(check)


def test_a_change_that_is_wrong_is_rejected_and_changes_nothing() -> None:
    async def check(controllers: Controllers) -> None:
        add, remove = controllers.addition, controllers.removal
        elsewhere = (Listener(name="CONTROLLER", host="node3", port=1),)
        for request, error in (
            (add(1), ErrorCode.duplicate_voter),
            (add(1, voter_directory_id=UUID(int=5)), ErrorCode.duplicate_voter),
            (add(2, cluster_id="another"), ErrorCode.inconsistent_cluster_id),
            (add(2, voter_directory_id=None), ErrorCode.invalid_request),
            (add(2, voter_id=-1), ErrorCode.invalid_request),
            (add(2, listeners=()), ErrorCode.invalid_request),
            (add(2, listeners=elsewhere), ErrorCode.request_timed_out),
            (
                add(2, voter_directory_id=UUID(int=5), timeout=timedelta(seconds=1)),
                ErrorCode.request_timed_out,
            ),
            (remove(1), ErrorCode.invalid_request),
            (remove(2), ErrorCode.voter_not_found),
            (remove(1, voter_directory_id=UUID(int=5)), ErrorCode.voter_not_found),
            (remove(1, cluster_id="another"), ErrorCode.inconsistent_cluster_id),
        ):
            response = await controllers.ask(1, request)
            assert response.error_code is error, (request, response)
            assert response.error_message
        assert (await controllers.ask(2, add(2))).error_code is ErrorCode.not_leader_or_follower
        assert controllers.quorum(1).voters == (1,)

    with_controllers(check)


def test_a_voter_with_a_new_address_updates_it() -> None:
    async def check(controllers: Controllers) -> None:
        for node_id in (2, 3):
            await controllers.ask(1, controllers.addition(node_id))
        await controllers.kill(3)
        await controllers.start(3, listeners="CONTROLLER://node3:9999")
        moved = VoterEndpoint("CONTROLLER", "node3", 9999)
        await wait_until(
            lambda: any(voter.endpoints == (moved,) for voter in controllers.quorum(1).voter_set.voters)
        )

    with_controllers(check)


def test_controllers_join_by_themselves_if_they_are_told_to() -> None:
    async def check(controllers: Controllers) -> None:
        await controllers.wait_for_voters(1, 2, 3)
        before = controllers.directories.pop(3)
        await controllers.kill(3)
        controllers.disks[3] = controllers.world.new_disk("/data")
        await controllers.start(3, controller_quorum_auto_join_enable="true")
        await wait_until(
            lambda: controllers.quorum(1).voter_set.directory_id_of(3) == controllers.directories[3]
        )
        assert controllers.directories[3] != before

    with_controllers(check, controller_quorum_auto_join_enable="true")


def test_kraft_version_is_not_lowered_and_raising_it_again_is_no_error() -> None:
    async def check(controllers: Controllers) -> None:
        for level, upgrade_type, error in (
            (1, FeatureUpgradeType.UPGRADE, ErrorCode.none),
            (0, FeatureUpgradeType.SAFE_DOWNGRADE, ErrorCode.invalid_update_version),
            (0, FeatureUpgradeType.UNSAFE_DOWNGRADE, ErrorCode.invalid_update_version),
            (2, FeatureUpgradeType.UPGRADE, ErrorCode.invalid_update_version),
        ):
            request = update_of_kraft_version(level, upgrade_type)
            response = await controllers.ask(1, request)
            assert response.error_code is error, (request, response)
        assert controllers.quorum(1).kraft_version == 1

    with_controllers(check)


STATIC = ",".join(f"{node_id}@node{node_id}:{PORT}" for node_id in NODES)


def update_of_kraft_version(level: int, upgrade_type: FeatureUpgradeType) -> UpdateFeaturesRequest:
    update = FeatureUpdateKey(feature="kraft.version", max_version_level=level, upgrade_type=upgrade_type)
    return UpdateFeaturesRequest(
        timeout=timedelta(seconds=10), feature_updates=(update,), validate_only=False
    )


def test_kraft_version_is_raised_as_soon_as_all_static_voters_have_registered() -> None:
    async def check(world: World) -> None:
        controllers = Controllers(world, is_static=True)
        for node_id in NODES:
            await controllers.start(node_id, controller_quorum_voters=STATIC)
        leader = await controllers.leader()
        began_s = asyncio.get_running_loop().time()
        await wait_until(lambda: len(controllers.quorum(leader).image.controllers) == len(NODES))
        assert asyncio.get_running_loop().time() - began_s < 0.5  # of virtual time
        request = update_of_kraft_version(1, FeatureUpgradeType.UPGRADE)
        response = await controllers.ask(leader, request)
        assert response.error_code is ErrorCode.none, response
        assert controllers.quorum(leader).kraft_version == 1

    simulate(check, 1)


def test_kraft_version_is_not_raised_without_a_static_voter() -> None:
    async def check(world: World) -> None:
        controllers = Controllers(world, is_static=True)
        for node_id in (1, 2):
            await controllers.start(node_id, controller_quorum_voters=STATIC)
        leader = await controllers.leader()
        response = await controllers.ask(leader, update_of_kraft_version(1, FeatureUpgradeType.UPGRADE))
        assert response.error_code is ErrorCode.invalid_update_version
        assert "Voter 3 has not registered" in response.error_message
        assert "Check that it runs, and try again" in response.error_message
        assert controllers.quorum(leader).kraft_version == 0

    simulate(check, 1)


def test_voters_survive_a_restart_of_all() -> None:
    async def check(controllers: Controllers) -> None:
        for node_id in (2, 3):
            await controllers.ask(1, controllers.addition(node_id))
        await controllers.wait_for_voters(1, 2, 3)
        for node_id in NODES:
            await controllers.kill(node_id)
        for node_id in NODES:
            await controllers.start(node_id)
        await controllers.leader()
        await controllers.wait_for_voters(1, 2, 3)

    with_controllers(check)
