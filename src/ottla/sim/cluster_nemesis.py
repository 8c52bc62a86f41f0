"""The faults of a simulated cluster, mixed from one seed: of processes, power, disks, links, clocks, and moves.

Several strands run at once, so that faults overlap. Each fault is repaired by the strand that injected it.

Acknowledged records are in the page caches of all in-sync replicas, not on their disks. So any number of nodes may be
killed or paused at once, but only one may lose its power. The controller cannot tell a kill from a power loss: if all
in-sync and eligible replicas of a partition end without a clean shutdown, it elects the last leader (KIP-966), and what
that one has lost is lost. So no other node is killed between a power loss and the time when the node is in sync again.
Nor is one stopped: a clean stop takes the replica out of its ISRs, and a controller that is cut off from the others may
not know yet that those are dead.
"""

import asyncio
import errno
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Any

from ottla.core.controller.commands import (
    AlterReassignments,
    ConfigChange,
    ConfigOp,
    ControllerCommand,
    ElectLeaders,
    IncrementalAlterConfigs,
)
from ottla.core.controller.image import ConfigResource
from ottla.core.controller.partition_commands import ElectionType, Reassignment
from ottla.model.config.cordoned import CORDONED_LOG_DIRS
from ottla.model.config.definition import ResourceType
from ottla.model.errors import KafkaError
from ottla.sim.cluster import SESSION_S, Cluster, ClusterNode
from ottla.sim.disk import WRITES, DiskSpeed

_EVENT_WITHIN_S = 2.0
_CLOCK_JUMP_MS = 20 * 60_000
_SHORT_S = 6.0
_PAUSE_S_MAX = 5.0


def _config_change(resource: ConfigResource, op: ConfigOp, value: str | None) -> IncrementalAlterConfigs:
    return IncrementalAlterConfigs(((resource, (ConfigChange(CORDONED_LOG_DIRS, op, value),)),))


class ClusterNemesis:
    """`clients` are hosts that cuts may separate from nodes; `session_s` is the session timeout of brokers."""

    def __init__(
        self,
        cluster: Cluster,
        random: Random,
        clients: Sequence[str],
        *,
        changes_clocks: bool = True,
        session_s: float = SESSION_S,
    ) -> None:
        self._long_s = 1.6 * session_s
        self._cluster = cluster
        self._world = cluster.world
        self._network = cluster.world.network
        self._random = random
        self._clients = clients
        self._taken: set[int] = set()  # nodes with a fault of their process
        self._without_power: ClusterNode | None = None  # has lost its power, and is not in all ISRs yet
        of_nodes = [
            self._kill, self._kill, self._kill, self._stop, self._stop, self._lose_power, self._lose_power,
            self._lose_power, self._pause, self._pause, self._reset_connections, self._break_disk,
            self._break_directory, self._slow_disk, self._move_replicas, self._cordon,
        ]  # fmt: skip
        if changes_clocks:
            of_nodes.append(self._change_clock)
        self._faults: list[Callable[[], Awaitable[None]]] = [
            *(self._on_node(fault) for fault in of_nodes),
            self._cut_link, self._cut_one_way, self._isolate, self._isolate, self._isolate_followers, self._split,
            self._cut_off_controller, self._cut_off_client, self._slow_link, self._lose_segments,
            self._kill_all, self._elect_preferred_leaders, self._reassign, self._reassign,
        ]  # fmt: skip

    async def run(self, strands: int, until_s: float, pause_s_max: float = _PAUSE_S_MAX) -> None:
        """All faults are repaired when it returns."""
        async with asyncio.TaskGroup() as group:
            for _ in range(strands):
                group.create_task(self._run_strand(until_s, pause_s_max))
        self._network.heal()

    async def _run_strand(self, until_s: float, pause_s_max: float) -> None:
        loop = asyncio.get_running_loop()
        while loop.time() < until_s:
            await asyncio.sleep(self._random.uniform(0.1, pause_s_max))
            await self._random.choice(self._faults)()

    def _note(self, kind: str) -> None:
        self._world.trace.note(f"fault: {kind}")
        self._world.faults[kind] += 1

    async def _last(self, seconds_max: float) -> None:
        await asyncio.sleep(self._random.uniform(0.05, seconds_max))

    async def _last_any(self) -> None:
        """Often shorter than a broker's session, sometimes longer."""
        await self._last(self._random.choice((_SHORT_S, _SHORT_S, self._long_s)))

    # Processes and power

    def _on_node(self, fault: Callable[[ClusterNode], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        async def on_node() -> None:
            node = await self._choose_node()
            if node.node_id not in self._taken and node.is_up:
                self._taken.add(node.node_id)
                await fault(node)
                self._taken.discard(node.node_id)

        return on_node

    async def _choose_node(self) -> ClusterNode:
        """Often right after an acknowledgement, when a fault shows the most errors; often a controller or a leader."""
        nodes = list(self._cluster.nodes.values())
        choice = self._random.random()
        if choice < 0.5:
            await self._wait_for(self._world.acknowledged)
        if choice < 0.2:
            return self._random.choice(self._cluster.active_controllers() or nodes)
        leaders = sorted(self._leaders())
        if choice < 0.7 and leaders:
            return self._cluster.nodes[self._random.choice(leaders)]
        return self._random.choice(nodes)

    def _leaders(self) -> set[int]:
        topics = self._cluster.image().topics.values()
        return {each.leader for topic in topics for each in topic.partitions.values() if each.has_leader}

    async def _wait_for(self, event: asyncio.Event) -> None:
        event.clear()
        try:
            async with asyncio.timeout(_EVENT_WITHIN_S):
                await event.wait()
        except TimeoutError:
            pass

    async def _restart(self, node: ClusterNode) -> None:
        await self._last_any()
        node.start()
        await self._last(_SHORT_S)

    async def _kill(self, node: ClusterNode) -> None:
        if not self._may_kill(node):
            return
        self._note("kill")
        await node.kill()
        await self._restart(node)

    async def _kill_all(self) -> None:
        nodes = [
            node
            for node in self._cluster.nodes.values()
            if node.node_id not in self._taken and node.is_up and self._may_kill(node)
        ]
        self._note(f"kill of {len(nodes)} nodes at once")
        self._taken |= {node.node_id for node in nodes}
        for node in nodes:
            await node.kill()
            await self._last(0.2)
        self._random.shuffle(nodes)
        for node in nodes:
            await self._restart(node)
            self._taken.discard(node.node_id)

    async def _stop(self, node: ClusterNode) -> None:
        if not self._may_kill(node):
            return
        self._note("stop")
        await node.stop()
        await self._restart(node)

    async def _lose_power(self, node: ClusterNode) -> None:
        if node.running is None or not self._may_kill(node) or not self._has_running_replicas(node):
            return
        self._note("power loss")
        if (
            node.is_broker
        ):  # a controller flushes what it acknowledges, and must not be remembered instead of a broker
            self._without_power = node
        await node.lose_power()
        await self._restart(node)

    async def _break_disk(self, node: ClusterNode) -> None:
        """The disk fails, is full, or tears a write. A node that cannot go on stops by itself, and is started again."""
        if node.running is None or not self._may_kill(node):
            return
        kind = self._random.choice(("disk failure", "full disk", "torn write"))
        self._note(kind)
        node.has_disk_fault = True
        if kind == "disk failure":
            node.disk.fail("/data", errno.EIO)
        elif kind == "full disk":
            node.disk.fail("/data", errno.ENOSPC, operations=WRITES)
        else:
            node.disk.fail("/data", errno.EIO, operations=frozenset({"write"}), times=1, is_torn=True)
        try:
            async with asyncio.timeout(self._random.uniform(0.5, _SHORT_S)):
                await node.has_failed.wait()
        except TimeoutError:
            node.disk.heal()
            await self._last(_SHORT_S)  # errors that are noticed late
        if node.has_failed.is_set():
            await node.kill()
            await self._restart(node)
        elif node.broker is not None and node.broker.services.log_dirs.offline:
            await node.stop()  # one of two directories failed: only a restart brings it back
            await self._restart(node)
        node.has_disk_fault = False

    async def _break_directory(self, node: ClusterNode) -> None:
        """One of two directories fails. The node goes on with the other; it is restarted when the disk is repaired, and
        sometimes before. The replicas in the directory are not closed cleanly, so this counts as a power loss.
        """
        paths = [] if node.broker is None else node.broker.services.log_dirs.paths
        if len(paths) < 2 or not self._may_kill(node) or not self._has_running_replicas(node):
            return
        self._note("directory failure")
        self._without_power = node
        node.has_disk_fault = True
        path = self._random.choice(paths)
        node.disk.fail(path)
        await self._last_any()
        if self._random.random() < 0.5:
            await node.kill()
            node.disk.fail(path)
            await self._restart(node)
        await node.stop()
        await self._restart(node)
        node.has_disk_fault = False

    async def _slow_disk(self, node: ClusterNode) -> None:
        """Work in threads takes long: flushes, recovery, the writes of a controller."""
        self._note("slow disk")
        disk = node.disk
        disk.speed = DiskSpeed(self._random.uniform(0, 20), self._random.uniform(10, 1500))
        await self._last_any()
        disk.speed = DiskSpeed()

    async def _move_replicas(self, node: ClusterNode) -> None:
        """Between the two directories of a node, also back while the first move is under way."""
        broker = node.broker
        paths = [] if broker is None else broker.services.log_dirs.paths
        if broker is None or len(paths) < 2:
            return
        self._note("replica move")
        for hosted in list(broker.services.partitions):
            if self._random.random() < 0.5:
                try:
                    broker.services.partitions.move(hosted.topic_partition, self._random.choice(paths))
                except KafkaError:
                    pass  # the directory is cordoned, or one is offline
        await self._last(_SHORT_S)

    async def _cordon(self, node: ClusterNode) -> None:
        """One directory of a node, or all of them. The cordon is lifted when the quorum is there again."""
        paths = [] if node.broker is None else node.broker.services.log_dirs.paths
        if not paths:
            return
        self._note("cordon")
        resource = ConfigResource(ResourceType.BROKER, str(node.node_id))
        value = self._random.choice([*paths, "*"])
        await self._submit(_config_change(resource, ConfigOp.SET, value))
        await self._last_any()
        while True:
            await self._submit(_config_change(resource, ConfigOp.DELETE, None))
            await self._last(1.0)
            if CORDONED_LOG_DIRS not in self._cluster.image().config(resource.type, resource.name):
                return

    def _may_kill(self, node: ClusterNode) -> bool:
        last = self._without_power
        if last is not None and not last.has_disk_fault and self._is_in_sync(last):
            self._without_power = None
        return self._without_power in (None, node) or not node.is_broker

    def _has_running_replicas(self, node: ClusterNode) -> bool:
        """Whether each partition of the node has another in-sync replica, which runs and so will not be killed.

        A partition with one replica is flushed before it acknowledges.
        """
        running = {
            each.node_id for each in self._cluster.brokers if each.running is not None and each is not node
        }
        return all(
            running.intersection(partition.isr)
            for topic in self._cluster.image().topics.values()
            for partition in topic.partitions.values()
            if node.node_id in partition.replicas and len(partition.replicas) > 1
        )

    def _is_in_sync(self, node: ClusterNode) -> bool:
        if node.broker is None:
            return not node.is_broker
        image = self._cluster.image()
        registered = image.brokers.get(node.node_id)
        epoch = node.broker.lifecycle.broker_epoch
        return (registered is not None and registered.epoch == epoch and not registered.fenced) and all(
            node.node_id in partition.isr
            for topic in image.topics.values()
            for partition in topic.partitions.values()
            if node.node_id in partition.replicas
        )

    async def _pause(self, node: ClusterNode) -> None:
        self._note("pause")
        node.pause()
        await self._last_any()
        node.resume()

    async def _reset_connections(self, node: ClusterNode) -> None:
        self._note("connections reset")
        self._network.reset_streams(node.host)

    async def _change_clock(self, node: ClusterNode) -> None:
        clock = self._world.clock_of(node.host)
        if self._random.random() < 0.5:
            self._note("clock jump")
            clock.jump(self._random.randint(-_CLOCK_JUMP_MS, _CLOCK_JUMP_MS))
        else:
            self._note("clock drift")
            clock.drift(self._random.uniform(0.2, 5.0))
        await self._last_any()
        clock.correct()

    # Elections and reassignments

    async def _elect_preferred_leaders(self) -> None:
        self._note("preferred leader election")
        await self._submit(ElectLeaders(ElectionType.PREFERRED, None))

    async def _reassign(self) -> None:
        """Moves a partition to two or three brokers, or cancels that. A single replica stays: its power may fail."""
        image = self._cluster.image()
        partitions = [
            (topic.name, index)
            for topic in image.topics.values()
            for index, partition in topic.partitions.items()
            if len(partition.replicas) > 1
        ]
        if not partitions:
            return
        topic, index = self._random.choice(partitions)
        replicas = None
        if self._random.random() < 0.8:
            brokers = sorted(image.brokers)
            replicas = tuple(self._random.sample(brokers, self._random.randint(2, 3)))
        self._note("reassignment" if replicas else "reassignment cancelled")
        await self._submit(AlterReassignments((Reassignment(topic, index, replicas),)))

    async def _submit(self, command: ControllerCommand[Any]) -> None:
        """To every node that takes itself for the active controller. It may reject the command."""
        for node in self._cluster.active_controllers():
            if node.quorum is None:
                continue  # it has ended while another one was asked
            try:
                async with asyncio.timeout(_EVENT_WITHIN_S):
                    await node.quorum.submit(command)
            except (KafkaError, TimeoutError):
                pass

    # Links

    def _hosts(self) -> list[str]:
        """In random order."""
        hosts = [node.host for node in self._cluster.nodes.values()]
        self._random.shuffle(hosts)
        return hosts

    async def _cut(self, kind: str, links: list[tuple[str, str]]) -> None:
        self._note(kind)
        for source, target in links:
            self._network.cut(source, target)
        await self._last_any()
        for source, target in links:
            self._network.heal(source, target)

    async def _cut_link(self) -> None:
        one, other = self._hosts()[:2]
        await self._cut("link cut", [(one, other), (other, one)])

    async def _cut_one_way(self) -> None:
        one, other = self._hosts()[:2]
        await self._cut("link cut one way", [(one, other)])

    async def _isolate(self) -> None:
        """Cuts a node off from the other nodes, not from the clients: it goes on to serve them for a while."""
        victim = (await self._choose_node()).host
        await self._cut("node isolated", self._around(victim, self._random.choice(("in", "out", "both"))))

    async def _isolate_followers(self) -> None:
        """Cuts all followers off from a leader for longer than their lag may be: the ISR shrinks to the leader."""
        leaders = sorted(self._leaders())
        if leaders:
            victim = self._cluster.nodes[self._random.choice(leaders)].host
            brokers = [node.host for node in self._cluster.brokers if node.host != victim]
            await self._cut("followers cut off", [(each, victim) for each in brokers])

    async def _cut_off_controller(self) -> None:
        active = self._cluster.active_controllers()
        if active:
            victim = self._random.choice(active).host
            brokers = [node.host for node in self._cluster.brokers if node.host != victim]
            links = [(victim, broker) for broker in brokers]
            await self._cut("controller cut off from brokers", links)

    async def _cut_off_client(self) -> None:
        client = self._random.choice(self._clients)
        host = self._hosts()[0]
        await self._cut("client cut off", [(client, host), (host, client)])

    def _around(self, victim: str, ways: str) -> list[tuple[str, str]]:
        others = [host for host in self._hosts() if host != victim]
        into = [(other, victim) for other in others if ways != "out"]
        out = [(victim, other) for other in others if ways != "in"]
        return into + out

    async def _split(self) -> None:
        hosts = self._hosts()
        half = len(hosts) // 2
        links = [(one, other) for one in hosts[:half] for other in hosts[half:]]
        await self._cut("network split", links + [(other, one) for one, other in links])

    async def _slow_link(self) -> None:
        self._note("slow link")
        one, other = self._hosts()[:2]
        self._network.slow(one, other, self._random.uniform(20, 1500))
        await self._last_any()
        self._network.heal(one, other)

    async def _lose_segments(self) -> None:
        self._note("lost segments")
        one, other = self._hosts()[:2]
        self._network.lose(one, other, self._random.uniform(0.05, 0.6))
        await self._last_any()
        self._network.heal(one, other)
