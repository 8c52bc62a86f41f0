"""The faults of a simulated quorum, mixed from one seed: of processes, power, links, clocks and disks.

Several strands run at once, so that faults overlap. Each fault is repaired by the strand that injected it.
"""

import asyncio
import errno
from collections.abc import Awaitable, Callable
from random import Random

from ottla.sim.disk import WRITES, DiskSpeed
from ottla.sim.quorum_cluster import QuorumCluster, QuorumNode

_EVENT_WITHIN_S = 2.0
_HOUR_MS = 3_600_000


class QuorumNemesis:
    def __init__(self, cluster: QuorumCluster, random: Random) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._network = cluster.world.network
        self._random = random
        self._taken: set[int] = set()  # nodes with a fault of their process or disk
        of_nodes = (
            self._kill, self._kill, self._stop, self._lose_power, self._lose_power, self._lose_power_in_operation,
            self._pause, self._pause, self._slow_disk, self._fill_disk, self._fail_disk, self._change_clock,
            self._slow_publishing, self._slow_replay,
        )  # fmt: skip
        of_links = (self._cut_link, self._cut_one_way, self._isolate, self._isolate, self._split, self._slow_link,
                    self._lose_segments)  # fmt: skip
        self._faults: list[Callable[[], Awaitable[None]]] = [
            *(self._on_node(fault) for fault in of_nodes),
            *of_links,
            self._lose_all_power,
        ]

    async def run(self, strands: int, until_s: float) -> None:
        """All faults are repaired when it returns."""
        async with asyncio.TaskGroup() as group:
            for _ in range(strands):
                group.create_task(self._run_strand(until_s))
        self._network.heal()

    async def _run_strand(self, until_s: float) -> None:
        loop = asyncio.get_running_loop()
        while loop.time() < until_s and self._cluster.checkers.violation is None:
            await asyncio.sleep(self._random.uniform(0.1, 3.0))
            await self._random.choice(self._faults)()

    def _note(self, kind: str) -> None:
        self._world.trace.note(f"fault: {kind}")
        self._world.faults[kind] += 1

    async def _last(self, seconds_max: float) -> None:
        await asyncio.sleep(self._random.uniform(0.05, seconds_max))

    # Processes, power and disks

    def _on_node(self, fault: Callable[[QuorumNode], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        async def on_node() -> None:
            node = await self._choose_node()
            if node is not None:
                self._taken.add(node.node_id)
                await fault(node)
                self._taken.discard(node.node_id)

        return on_node

    async def _choose_node(self) -> QuorumNode | None:
        """Often a controller, or a node that has just acknowledged or voted: faults then show the most errors."""
        nodes = list(self._cluster.nodes.values())
        choice, chosen = self._random.random(), self._random.choice(nodes)
        if choice < 0.2:
            await self._wait_for(self._cluster.voted)
            chosen = self._cluster.nodes[self._cluster.last_voter]
        elif choice < 0.6:
            if choice < 0.4:
                await self._wait_for(self._world.acknowledged)
            chosen = self._random.choice(self._cluster.active_nodes() or nodes)
        return None if chosen.node_id in self._taken else chosen

    async def _wait_for(self, event: asyncio.Event) -> None:
        event.clear()
        try:
            async with asyncio.timeout(_EVENT_WITHIN_S):
                await event.wait()
        except TimeoutError:
            pass

    async def _restart(self, node: QuorumNode) -> None:
        await self._last(4.0)
        await node.start()

    async def _kill(self, node: QuorumNode) -> None:
        self._note("kill")
        await node.kill()
        await self._restart(node)

    async def _stop(self, node: QuorumNode) -> None:
        self._note("stop")
        await node.stop()
        await self._restart(node)

    async def _lose_power(self, node: QuorumNode) -> None:
        self._note("power loss")
        await node.lose_power()
        await self._restart(node)

    async def _lose_power_in_operation(self, node: QuorumNode) -> None:
        self._note("power loss in a disk operation")
        node.disk.crash_after(self._random.randrange(40))
        await self._last(5.0)
        await node.lose_power()
        await self._restart(node)

    async def _lose_all_power(self) -> None:
        self._note("power loss of all nodes")
        nodes = [node for node in self._cluster.nodes.values() if node.node_id not in self._taken]
        self._taken |= {node.node_id for node in nodes}
        for node in nodes:
            await node.lose_power()
        for node in nodes:
            await self._restart(node)
            self._taken.discard(node.node_id)

    async def _pause(self, node: QuorumNode) -> None:
        self._note("pause")
        node.pause()
        await self._last(8.0)
        node.resume()

    async def _slow_disk(self, node: QuorumNode) -> None:
        self._note("slow disk")
        node.disk.speed = DiskSpeed(self._random.uniform(0, 20), self._random.uniform(10, 1500))
        await self._last(10.0)
        node.disk.speed = DiskSpeed()

    async def _fill_disk(self, node: QuorumNode) -> None:
        self._note("full disk")
        await self._break_disk(node, errno.ENOSPC, WRITES)

    async def _fail_disk(self, node: QuorumNode) -> None:
        self._note("failing disk")
        await self._break_disk(node, errno.EIO, None)

    async def _break_disk(self, node: QuorumNode, error: int, operations: frozenset[str] | None) -> None:
        """The node must stop; a restart finds a disk that works again."""
        node.has_disk_fault = True
        node.disk.fail(node.log_dir, error, operations=operations, is_torn=self._random.random() < 0.5)
        await self._last(5.0)
        await node.kill()
        await self._restart(node)

    async def _change_clock(self, node: QuorumNode) -> None:
        clock = self._world.clock_of(node.host)
        if self._random.random() < 0.5:
            self._note("clock jump")
            clock.jump(self._random.randint(-_HOUR_MS, _HOUR_MS))
        else:
            self._note("clock drift")
            clock.drift(self._random.uniform(0.2, 5.0))
        await self._last(10.0)
        clock.correct()

    async def _slow_publishing(self, node: QuorumNode) -> None:
        """The broker of this process takes long to apply an image. If it leads, it is deposed meanwhile."""
        self._note("slow publishing")
        node.publish_s = self._random.uniform(0.1, 10.0)
        await self._last(2.0)
        await self._isolate_node(node)
        node.publish_s = 0.0

    async def _slow_replay(self, node: QuorumNode) -> None:
        """The node falls behind, so that a snapshot of the leader replaces the log that it replays."""
        self._note("slow replay")
        node.replay_slowly(self._random.uniform(0.05, 1.0))
        await self._last(2.0)
        await self._isolate_node(node)
        await self._last(3.0)
        node.replay_slowly(0.0)

    async def _isolate_node(self, node: QuorumNode) -> None:
        others = [host for host in self._hosts() if host != node.host]
        links = [(node.host, other) for other in others] + [(other, node.host) for other in others]
        await self._cut("node isolated", links)

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
        await self._last(10.0)
        for source, target in links:
            self._network.heal(source, target)

    async def _cut_link(self) -> None:
        one, other = (self._hosts() * 2)[:2]
        await self._cut("link cut", [(one, other), (other, one)])

    async def _cut_one_way(self) -> None:
        one, other = (self._hosts() * 2)[:2]
        await self._cut("link cut one way", [(one, other)])

    async def _isolate(self) -> None:
        """Of the active controller if there is one, or of any node; some can still send, or still receive."""
        active = [node.host for node in self._cluster.active_nodes()]
        victim = self._random.choice(active or self._hosts())
        others = [host for host in self._hosts() if host != victim]
        ways = self._random.choice(("in", "out", "both", "both"))
        into = [(other, victim) for other in others if ways != "out"]
        out = [(victim, other) for other in others if ways != "in"]
        await self._cut("node isolated", into + out)

    async def _split(self) -> None:
        hosts = self._hosts()
        half = len(hosts) // 2
        links = [(one, other) for one in hosts[:half] for other in hosts[half:]]
        await self._cut("network split", links + [(other, one) for one, other in links])

    async def _slow_link(self) -> None:
        self._note("slow link")
        one, other = (self._hosts() * 2)[:2]
        self._network.slow(one, other, self._random.uniform(20, 1500))
        await self._last(10.0)
        self._network.heal(one, other)

    async def _lose_segments(self) -> None:
        self._note("lost segments")
        one, other = (self._hosts() * 2)[:2]
        self._network.lose(one, other, self._random.uniform(0.05, 0.6))
        await self._last(10.0)
        self._network.heal(one, other)
