"""This node's part in the metadata quorum: the raft driver, the loader and, while this node leads, the controller."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from ottla.broker.quorum.bootstrap import bootstrap_records
from ottla.broker.quorum.controller_runtime import ControllerRuntime
from ottla.broker.quorum.description import QuorumDescription, describe_quorum
from ottla.broker.quorum.loader import MetadataLoader, Subscriber
from ottla.broker.quorum.metadata_log import METADATA_PARTITION, MetadataLog
from ottla.broker.quorum.quorum_state import read_quorum_state
from ottla.broker.quorum.raft_driver import NoPeers, Peers, RaftDriver
from ottla.broker.quorum.settings import QuorumSettings
from ottla.broker.quorum.snapshot_writer import SnapshotWriter
from ottla.core.controller.commands import (
    BalanceLeaders,
    ControllerCommand,
    ElectLostLeaders,
    ResponseT,
)
from ottla.core.controller.image import MetadataImage
from ottla.core.controller.machine import ControllerMachine
from ottla.core.controller.settings import ControllerSettings
from ottla.core.raft.node import RaftNode
from ottla.core.raft.settings import RaftSettings
from ottla.core.raft.voter_set import Voter, VoterEndpoint, VoterSet
from ottla.env import Env
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition
from ottla.protocol.metadata_records.codec import encode_record
from ottla.protocol.metadata_records.records import AbortTransactionRecord

logger = logging.getLogger("ottla.quorum")

_HAND_OVER_S = 1.0
_UNKNOWN_VOTERS_MAX = 16  # that are warned of: their ids come from requests


class Quorum:
    """`log_dir` is metadata.log.dir. A new log is created there only if this node has no `partitions` yet.

    `voters` count as long as the log names none. `has_fixed_voters`: there can be no others, at kraft.version 0. `own`
    is this node as a voter of the log, if it can become one (KIP-853).

    `on_failure` is called once, if the metadata log cannot be written or read: the node must stop then.
    """

    def __init__(
        self,
        env: Env,
        log_dir: str,
        *,
        node_id: int,
        controller: ControllerSettings,
        settings: QuorumSettings,
        on_failure: Callable[[Exception], None],
        partitions: Sequence[TopicPartition] = (),
        voters: Sequence[int] | None = None,
        raft: RaftSettings | None = None,
        peers: Peers | None = None,
        own: Voter | None = None,
        has_fixed_voters: bool = True,
    ) -> None:
        self._env = env
        self._log_dir = log_dir
        self._node_id = node_id
        self._static_voters = VoterSet.of_ids((node_id,) if voters is None else voters)
        self._has_fixed_voters = has_fixed_voters
        self.own = own  # until the start
        self.learned: dict[int, VoterEndpoint] = {}  # of leaders, from other nodes (KIP-853)
        self._controller_settings = controller
        self._settings = settings
        self._raft_settings = raft or RaftSettings()
        self._peers = peers or NoPeers()
        self._on_failure = on_failure
        self._partitions = partitions
        self._subscribers: list[Subscriber] = []
        self._stepped = asyncio.Event()
        self._activated = asyncio.Event()
        self._stopped: KafkaError | None = None
        self._has_failed = False
        self._controller: ControllerRuntime | None = None
        self._aborted_epoch = -1
        self._last_leader_id = -1
        self._unknown_voters: set[int] = set()
        self.on_new_leader: Callable[[], None] = lambda: None
        self._tasks: list[asyncio.Task[None]] = []
        self._checks: list[asyncio.Task[None]] = []

    # Starting and stopping

    async def start(self) -> None:
        """Opens the log and takes part in the quorum. The only voter leads when this returns.

        Raises OSError, and KafkaError if the log or its snapshot is damaged or missing.
        """
        env, now_ms = self._env, self._env.clock.now_ms()
        directory = f"{self._log_dir}/{METADATA_PARTITION}"
        if self._partitions and not MetadataLog.has_records(env.disk, directory):
            raise KafkaError(
                ErrorCode.kafka_storage_error,
                f"the metadata log {directory} is missing or empty, but there are {len(self._partitions)} partitions, "
                f"such as {self._partitions[0]}, whose metadata would be lost. Restore that directory from a backup or "
                "set metadata.log.dir to its location; for a new cluster, choose an empty data directory",
            )
        self._log = MetadataLog.open(env.disk, directory, self._settings, now_ms)
        self.loader = MetadataLoader(env, self._log, self._subscribers, self._published)
        if self._log.snapshots:
            self.loader.load_snapshot(self._log.snapshots[-1])
        history = self._log.voter_history(self._static_voters, is_fixed=self._has_fixed_voters)
        node = RaftNode(
            self._node_id,
            history,
            hard_state=read_quorum_state(env.disk, directory),
            log=self._log.log_state(),
            settings=self._raft_settings,
            random_below=env.random.randrange,
            now_ms=env.clock.monotonic_ms(),
            own=self.own,
        )
        self.driver = RaftDriver(
            env, node, self._log, self._peers, on_step=self._on_step, on_failure=self._fail
        )
        self._snapshots = SnapshotWriter(env, self._settings, self._log, self.driver, self.loader)
        self.driver.start()
        self._tasks.append(asyncio.create_task(self._run(), name="quorum"))
        if node.is_only_voter:
            await self._activated.wait()
            if self._stopped is not None:
                raise self._stopped
            opaque = len(self.image.opaque)
            if opaque:
                logger.warning(
                    "the metadata log has %d records of types without effect so far (quotas, ACLs, tokens); "
                    "they are kept",
                    opaque,
                )

    async def close(self) -> None:
        """Ends after the current step. Commands without a response get an error."""
        if self._tasks and self._stopped is None:
            await self.driver.hand_over(_HAND_OVER_S)
        self._stop(KafkaError(ErrorCode.not_controller, f"node {self._node_id} is shutting down"))
        if not self._tasks:
            return
        await self.driver.close()
        await asyncio.gather(*self._tasks)
        await self._snapshots.close()
        try:
            self._log.close(clean=not self._has_failed)
        except OSError as error:
            # Committed records are on disk; the others were never acknowledged.
            logger.error("the metadata log in %s is not closed cleanly: %s", self._log_dir, error)

    # Use

    @property
    def image(self) -> MetadataImage:
        """The committed metadata, as far as the subscribers know it."""
        return self.loader.image

    @property
    def is_started(self) -> bool:
        return bool(self._tasks)

    @property
    def voters(self) -> tuple[int, ...]:
        return self.voter_set.ids

    @property
    def has_fixed_voters(self) -> bool:
        """Whether the voters are those of `controller.quorum.voters`: kraft.version 0."""
        return self.driver.node.history.is_fixed if self.is_started else self._has_fixed_voters

    @property
    def can_grow(self) -> bool:
        """Whether this node can reach others. One that was its own quorum when it started cannot."""
        return not isinstance(self._peers, NoPeers)

    @property
    def kraft_version(self) -> int:
        return self.driver.node.history.kraft_version if self.is_started else 0

    @property
    def voter_set(self) -> VoterSet:
        """The latest voters in the log, committed or not."""
        return self.driver.node.history.latest if self.is_started else self._static_voters

    @property
    def leader_id(self) -> int:
        """The active controller, as far as this node knows; -1 if it does not."""
        return self.driver.node.leader_id

    @property
    def is_active(self) -> bool:
        """Whether this node is the active controller. It is not, once its log has failed."""
        return self.machine is not None

    @property
    def machine(self) -> ControllerMachine | None:
        """The state of the active controller, if it is this node."""
        return self._controller.machine if self._controller is not None and self._stopped is None else None

    async def submit(self, command: ControllerCommand[ResponseT]) -> ResponseT:
        """The response to a command, after its records are committed and all subscribers have applied them.

        Raises KafkaError if the whole command is rejected, or this node is not the active controller.
        """
        if self._stopped is not None:
            raise self._stopped
        if self._controller is None:
            raise self._not_controller()
        return await self._controller.submit(command)

    def subscribe(self, subscriber: Subscriber) -> None:
        """`subscriber(old, new)` is called for every new image, in order, before the responses to its commands.

        If it is subscribed before the start, the first call has an empty old image.
        """
        self._subscribers.append(subscriber)

    def describe_quorum(self) -> QuorumDescription | None:
        """None unless this node leads: only the leader knows how far the others are."""
        clock = self._env.clock
        return describe_quorum(self.driver.node, clock.monotonic_ms(), clock.now_ms())

    def _on_step(self) -> None:
        # At once, not when `_run` has published: publishing may take seconds, and the next leader's records may have
        # replaced those of this controller by then.
        self._check_leadership()
        self._stepped.set()
        if self._controller is not None:
            self._controller.on_committed(self.driver.node.high_watermark)

    # Applying what is committed

    async def _run(self) -> None:
        try:
            while self._stopped is None:
                await self._stepped.wait()
                self._stepped.clear()
                self._notify_of_leader()
                await self._load()
                self._maybe_activate()
                if self._controller is not None and self.image.features:
                    self._activated.set()
        except Exception as error:
            self._fail(error)

    async def _load(self) -> None:
        node, loader = self.driver.node, self.loader
        while self._stopped is None and (
            loader.applied_offset + 1 < node.high_watermark or loader.has_unpublished_snapshot
        ):
            latest = self._log.snapshots[-1] if self._log.snapshots else None
            if latest is not None and loader.applied_offset + 1 < self._log.log_start_offset:
                if latest.end_offset > node.high_watermark:
                    return  # the step that writes it has not ended: its end calls again
                loader.load_snapshot(latest)  # the leader has sent it
            await loader.apply(node.high_watermark)
            self._snapshots.maybe_write()

    def _published(self) -> None:
        if self._controller is not None:
            self._controller.on_published()

    # The controller

    def _notify_of_leader(self) -> None:
        if self.leader_id != self._last_leader_id:
            self._last_leader_id = self.leader_id
            logger.info(
                "node %d: the leader of the quorum is %s in epoch %d",
                self._node_id,
                f"node {self.leader_id}" if self.leader_id >= 0 else "not known",
                self.driver.node.epoch,
            )
            self.warn_of_unknown_voter(self.leader_id)
            self.on_new_leader()

    def warn_of_unknown_voter(self, node_id: int) -> None:
        """`node_id` leads or wants to lead. If it is none of the static voters, then two nodes have different ones.

        Nothing more can be done. Kafka has not used INCONSISTENT_VOTER_SET since KIP-853, and votes for such a node and
        follows it: with kraft.version 1 it may be a voter in the part of the log that this node does not have yet.
        """
        is_unknown = node_id >= 0 and self.has_fixed_voters and node_id not in self.voters
        if (
            is_unknown
            and node_id not in self._unknown_voters
            and len(self._unknown_voters) < _UNKNOWN_VOTERS_MAX
        ):
            self._unknown_voters.add(node_id)
            logger.warning(
                "node %d takes part in an election of the quorum, but the voters of node %d are %s: two leaders are "
                "possible. Set controller.quorum.voters to the same nodes in the configs of all nodes",
                node_id,
                self._node_id,
                list(self.voters),
            )

    def _check_leadership(self) -> None:
        """Discards the controller if this node no longer leads, or leads in another epoch."""
        controller, node = self._controller, self.driver.node
        if controller is not None and not (node.is_leader and node.epoch == controller.epoch):
            logger.info("node %d is no longer the active controller", self._node_id)
            self._controller = None
            self.loader.withdraw_offers()
            controller.stop(self._not_controller())

    def _maybe_activate(self) -> None:
        """Creates the controller when this node leads and has applied everything before its epoch."""
        node, loader = self.driver.node, self.loader
        if self._controller is not None or self._stopped is not None or not node.is_leader:
            return
        if loader.applied_offset < node.epoch_start_offset:
            return
        if loader.in_transaction:
            if self._aborted_epoch != node.epoch:
                self._aborted_epoch = node.epoch
                abort = AbortTransactionRecord(reason="Controller failover")
                self.driver.propose([encode_record(abort, loader.image.metadata_version)], node.epoch)
            return
        machine = ControllerMachine(self._controller_settings, loader.image)
        controller = ControllerRuntime(self._env, self.driver, loader, machine, node.epoch)
        self._controller = controller
        self._tasks = [task for task in self._tasks if not task.done()]
        self._start_checks(controller)
        self._tasks.append(asyncio.create_task(self._run_controller(controller), name="controller"))
        if not loader.image.features:
            min_isr = self._controller_settings.min_insync_replicas
            now_ms = self._env.clock.now_ms()
            controller.append(bootstrap_records(self._env.disk, self._log_dir, now_ms, min_isr))

    def _start_checks(self, controller: ControllerRuntime) -> None:
        """What the controller does by itself, as long as it is active."""
        settings = self._settings
        # The controller before may have stopped between two parts of a decision.
        controller.submit_unasked(ElectLostLeaders())
        checks = [
            controller.repeat(BalanceLeaders(), settings.leader_balance_interval_ms),
            controller.repeat(ElectLostLeaders(), settings.leader_election_interval_ms),
        ]
        if not self.has_fixed_voters or len(self.voters) > 1:
            checks.append(controller.write_no_ops(settings.no_op_interval_ms))
        self._checks = [asyncio.create_task(check, name="controller check") for check in checks]

    async def _run_controller(self, controller: ControllerRuntime) -> None:
        checks = self._checks
        try:
            await controller.run()
        except Exception as error:
            self._fail(error)
        finally:
            for check in checks:
                check.cancel()
            await asyncio.gather(*checks, return_exceptions=True)

    def _not_controller(self) -> KafkaError:
        leader_id = self.driver.node.leader_id
        active = f"node {leader_id} is" if leader_id >= 0 else "no node is known as"
        return KafkaError(
            ErrorCode.not_controller, f"node {self._node_id} is not the active controller: {active} it"
        )

    # Failures

    def _fail(self, error: Exception) -> None:
        """A disk error, or a record that contradicts the image: the image is not reliable in both cases."""
        if self._has_failed:
            return
        self._has_failed = True
        logger.critical(
            "the metadata log in %s failed, the node must stop: %s", self._log_dir, error,
            exc_info=None if isinstance(error, OSError | KafkaError) else error,
        )  # fmt: skip
        reason = f"the metadata log in {self._log_dir} failed: {error}"
        self._stop(KafkaError(ErrorCode.kafka_storage_error, reason))
        self._on_failure(error)

    def _stop(self, reason: KafkaError) -> None:
        if self._stopped is None:
            self._stopped = reason
        if self._controller is not None:
            self._controller.stop(self._stopped)
        self._stepped.set()
        self._activated.set()
