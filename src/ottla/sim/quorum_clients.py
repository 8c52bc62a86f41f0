"""Clients of a simulated quorum: they create, alter and delete topics, and know what must be in the final image.

Every topic belongs to one client. After a command whose outcome is unknown, the client leaves the topic alone, because
the command may still be committed at any later time.
"""

import asyncio
from dataclasses import dataclass
from random import Random
from typing import Any
from uuid import UUID

from ottla.core.controller.commands import (
    ApiError,
    BrokerHeartbeat,
    ConfigChange,
    ConfigOp,
    CreateTopics,
    DeleteTopics,
    IncrementalAlterConfigs,
    NewTopic,
    RegisterBroker,
    TopicToDelete,
)
from ottla.core.controller.image import ConfigResource, MetadataImage
from ottla.core.controller.settings import supported_feature_ranges
from ottla.model.config import ResourceType
from ottla.model.errors import ErrorCode, KafkaError
from ottla.sim.quorum_checkers import ACKNOWLEDGED_COMMANDS, QuorumViolation
from ottla.sim.quorum_cluster import QuorumCluster, QuorumNode

_CONFIG = "retention.ms"
_VOTER_PAUSE_S_MAX = 1.5
_RETRY_PAUSE_S = 0.2
_TIMEOUT_S = 4.0
_PAUSE_S_MAX = 0.8
BROKER_ID = 1


class UnknownOutcome(Exception):
    """The command may have been committed, or may still be."""


@dataclass(slots=True)
class TopicState:
    """What was acknowledged. `config` is the value of the only config that clients set."""

    exists: bool
    config: str | None = None


async def submit(cluster: QuorumCluster, random: Random, command: Any, *, is_urgent: bool = False) -> Any:
    """Asks one node after the other, in random order, until the active controller responds.

    Raises UnknownOutcome if a node does not respond in time or dies. An urgent command is tried again then.
    """
    while True:
        nodes = list(cluster.nodes.values())
        random.shuffle(nodes)
        # Most clients know the controller; some ask the others first.
        nodes.sort(key=lambda node: not node.is_active and random.random() < 0.8)
        for node in nodes:
            response, is_known = await _try(node, command)
            if response is not None:
                return response
            if not is_known and not is_urgent:
                raise UnknownOutcome
        await asyncio.sleep(_RETRY_PAUSE_S * random.random())


async def _try(node: QuorumNode, command: Any) -> tuple[Any, bool]:
    """The response, if there is one, and whether the node has none because it is not the controller."""
    if node.quorum is None:
        return None, True
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            return (await node.submit(command),), True
    except KafkaError as error:
        # A command of a deposed controller may have been committed, but not later than this response.
        return None, error.code is ErrorCode.not_controller
    except (OSError, TimeoutError):
        return None, False


async def register_broker(cluster: QuorumCluster, random: Random) -> None:
    """Topics need a broker for their replicas."""
    register = RegisterBroker(BROKER_ID, UUID(int=7), (), supported_feature_ranges(), (UUID(int=9 << 64),))
    (epoch,) = await submit(cluster, random, register, is_urgent=True)
    await submit(cluster, random, BrokerHeartbeat(BROKER_ID, epoch, epoch), is_urgent=True)


async def change_voters(cluster: QuorumCluster, random: Random, until_s: float) -> None:
    """Adds and removes voters at nodes that take themselves for the leader, until the time is over (KIP-853)."""
    loop, world = asyncio.get_running_loop(), cluster.world
    while loop.time() < until_s:
        await asyncio.sleep(random.uniform(0.05, _VOTER_PAUSE_S_MAX))
        nodes = cluster.active_nodes()
        if not nodes:
            continue
        node, voter = random.choice(nodes), random.choice(list(cluster.nodes))
        assert node.quorum is not None
        is_upgrade = cluster.begins_static and node.quorum.kraft_version == 0
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                change = await node.change_voter(voter, random.choice((300, 4_000)))
        except (OSError, TimeoutError):
            continue
        what = "add voter" if change.voter is not None else "remove voter"
        if is_upgrade:
            what = "raise kraft.version"
        result = "none" if change.error is None else change.error.name
        world.trace.note(f"node{node.node_id} is to {what} ({change.key}): {result}")
        if change.error is ErrorCode.none:
            world.faults[what] += 1


class CommandClient:
    def __init__(self, cluster: QuorumCluster, name: str, random: Random) -> None:
        self._cluster = cluster
        self._name = name
        self._random = random
        self._topics: dict[str, TopicState] = {}
        self._abandoned: dict[str, tuple[TopicState, TopicState]] = {}  # before and after the unknown command
        self._topics_made = 0
        self.acknowledged = 0

    async def run(self, until_s: float) -> None:
        loop = asyncio.get_running_loop()
        while loop.time() < until_s:
            await self.step()
            await asyncio.sleep(self._random.random() * _PAUSE_S_MAX)

    async def step(self) -> None:
        existing = [name for name, state in self._topics.items() if state.exists]
        choice = self._random.random()
        if not existing or choice < 0.5:
            self._topics_made += 1
            await self.create(f"{self._name}-{self._topics_made}")
        elif choice < 0.8:
            await self._alter(self._random.choice(existing))
        else:
            await self._delete(self._random.choice(existing))

    async def create(self, name: str) -> None:
        topic = NewTopic(name, UUID(int=self._random.getrandbits(120) + 1), 1, 1)
        # If the first try was committed without a response, the second one finds the topic.
        accepted = (ErrorCode.none, ErrorCode.topic_already_exists)
        self._topics[name] = TopicState(exists=False)
        await self._submit(name, CreateTopics((topic,)), TopicState(exists=True), accepted)

    async def _alter(self, name: str) -> None:
        value = str(self._random.randrange(1, 10**9))
        change = (ConfigChange(_CONFIG, ConfigOp.SET, value),)
        command = IncrementalAlterConfigs(((ConfigResource(ResourceType.TOPIC, name), change),))
        await self._submit(name, command, TopicState(exists=True, config=value), (ErrorCode.none,))

    async def _delete(self, name: str) -> None:
        command = DeleteTopics((TopicToDelete(name),))
        await self._submit(name, command, TopicState(exists=False), (ErrorCode.none,))

    async def _submit(
        self, name: str, command: Any, after: TopicState, accepted: tuple[ErrorCode, ...]
    ) -> None:
        note = self._cluster.world.trace.note
        note(f"client {self._name} submits {type(command).__name__} {name}")
        try:
            ((result,),) = await submit(self._cluster, self._random, command)
        except UnknownOutcome:
            note(f"client {self._name} does not know the outcome of {type(command).__name__} {name}")
            self._abandoned[name] = self._topics.pop(name), after
            return
        error: ApiError = result[1] if isinstance(command, IncrementalAlterConfigs) else result.error
        note(f"client {self._name} is told {error.code.name} for {type(command).__name__} {name}")
        if error.code is ErrorCode.unknown_topic_or_partition:
            # As in Kafka, a controller that does not know yet that it was deposed rejects by its old metadata. Or an
            # earlier try has deleted the topic.
            self._abandoned[name] = self._topics.pop(name), after
            return
        if error.code not in accepted:
            raise QuorumViolation(
                ACKNOWLEDGED_COMMANDS, f"{type(command).__name__} of {name} was rejected: {error}"
            )
        self._topics[name] = after
        self.acknowledged += 1
        self._cluster.world.acknowledged.set()

    def check(self, image: MetadataImage) -> int:
        """Compares the final image with what was acknowledged. Returns the number of topics."""
        for name, state in self._topics.items():
            self._check_topic(image, name, (state,))
        for name, states in self._abandoned.items():
            self._check_topic(image, name, states)
        return len(self._topics) + len(self._abandoned)

    def _check_topic(self, image: MetadataImage, name: str, possible: tuple[TopicState, ...]) -> None:
        config = image.config(ResourceType.TOPIC, name).get(_CONFIG)
        found = TopicState(name in image.topics, config)
        if found not in possible:
            raise QuorumViolation(
                ACKNOWLEDGED_COMMANDS, f"topic {name} is {found}, acknowledged was {possible[0]}"
            )
