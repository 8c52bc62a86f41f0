"""The composition root: one broker, from its configuration and an `Env` to a listener that serves.

    async with Broker(BrokerConfig({"log.dirs": "data", "listeners": "PLAINTEXT://127.0.0.1:0"})) as broker:
        print(broker.address)

There is no global state: several brokers live in one process, each with its own directories and port.
"""

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from contextlib import AsyncExitStack
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

from ottla.broker.coordinators.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from ottla.broker.dispatch import Dispatcher
from ottla.broker.housekeeping import Housekeeping
from ottla.broker.log_cleaner import LogCleaner
from ottla.broker.partition_host import PartitionHost
from ottla.broker.pending import Pending
from ottla.broker.producer_ids import ProducerIds
from ottla.broker.quorum.driver import Quorum
from ottla.broker.quorum.metadata_log import METADATA_PARTITION
from ottla.broker.quorum.settings import QuorumSettings
from ottla.broker.record_work import RecordWork
from ottla.broker.server_settings import new_server, server_limits
from ottla.broker.turns import Turns
from ottla.broker.waiting_room import WaitingRoom
from ottla.core.client_telemetry import ClientTelemetry
from ottla.core.controller.changes import MetadataChanges, changes_since
from ottla.core.controller.commands import (
    AllocateProducerIds,
    CreateTopics,
    NewTopic,
    ProducerIdBlock,
    RegisterBroker,
    UnfenceBroker,
)
from ottla.core.controller.image import ConfigResource, MetadataImage
from ottla.core.controller.settings import SUPPORTED_FEATURES, ControllerSettings
from ottla.env import Env
from ottla.env.network import Stream
from ottla.env.real import real_env
from ottla.model.config import (
    BrokerConfig,
    ConfigError,
    ResourceType,
    rejection_errors,
    unsupported_change_error,
    unsupported_errors,
    validate,
    validate_broker_configs,
    validate_group_configs,
    validate_topic_configs,
)
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import uuid_to_string
from ottla.protocol.metadata_records.records import Endpoint, FeatureRange
from ottla.storage.log import Log
from ottla.storage.log_dirs import LogDirs
from ottla.storage.meta_properties import (
    LostDirectoryError,
    MetaProperties,
    RefusedDirectoryError,
    check_identity,
    missing_identity,
    read_meta_properties,
    write_meta_properties,
)

if TYPE_CHECKING:
    from ottla.broker.coordinators.groups import GroupCoordinator
    from ottla.broker.coordinators.transactions import TransactionCoordinator
    from ottla.core.fetch_session import FetchSessionCache

logger = logging.getLogger("ottla.broker")

T = TypeVar("T")


class Node(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None


class Broker:
    def __init__(self, config: BrokerConfig, env: Env | None = None) -> None:
        self.config = config
        self.env = env or real_env()
        self._owns_env = env is None
        self.failed: asyncio.Future[Exception] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self.turns = Turns(self.env.clock)
        self._long_message = asyncio.Semaphore(1)
        self._broker_epoch = -1
        self._groups: GroupCoordinator | None = None
        self._transactions: TransactionCoordinator | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # -- start and stop

    async def start(self) -> None:
        """Loads everything, and listens last. Raises ConfigError, RefusedDirectoryError, KafkaError, OSError."""
        config, env = self.config, self.env
        if problems := unsupported_errors(config):
            raise ConfigError(problems)
        self.failed = asyncio.get_running_loop().create_future()
        async with AsyncExitStack() as undo:
            if self._owns_env:
                undo.callback(env.workers.close)
            self.log_dirs = LogDirs(env.disk, config.log_dirs)
            undo.callback(self.log_dirs.release)
            self._check_metadata_dir()
            self._identify()
            self.quorum = self._new_quorum()
            undo.push_async_callback(self.quorum.close)
            await self._start_metadata()
            await self._start_partitions()
            if self.failed.done():
                raise self.failed.result()
            await self._start_server()
            undo.pop_all()
        logger.info("broker %d of cluster %s serves on %s:%d", config.node_id, self.cluster_id, *self.address)

    def _identify(self) -> None:
        known = self.log_dirs.known_cluster_id
        self.cluster_id = self.log_dirs.identify(
            self.config.node_id, self.new_uuid, known or uuid_to_string(self.new_uuid())
        )
        if self.config.metadata_log_dir.rstrip("/") not in {*self.log_dirs.paths, *self.log_dirs.offline}:
            self._identify_metadata_dir(self.config.metadata_log_dir)

    def _identify_metadata_dir(self, path: str) -> None:
        """One of its own: as the data directories, it belongs to one node of one cluster."""
        disk, node_id = self.env.disk, self.config.node_id
        meta = read_meta_properties(disk, path)
        if meta is not None:
            check_identity(path, meta, node_id, self.cluster_id, self.log_dirs.paths[0])
        elif disk.exists(f"{path}/{METADATA_PARTITION}"):
            raise missing_identity(path)
        else:
            disk.make_dirs(path)
            write_meta_properties(disk, path, MetaProperties(self.cluster_id, node_id, self.new_uuid()))

    def _new_quorum(self) -> Quorum:
        config = self.config
        return Quorum(
            self.env,
            config.metadata_log_dir,
            node_id=config.node_id,
            controller=ControllerSettings(
                self._validate_configs,
                num_partitions=config.get_int("num.partitions"),
                default_replication_factor=config.get_int("default.replication.factor"),
            ),
            settings=QuorumSettings.from_config(config),
            on_failure=self._fail,
            partitions=self.log_dirs.partitions,
        )

    async def _start_metadata(self) -> None:
        config = self.config
        await self.quorum.start()
        self._broker_epoch = await self.quorum.submit(
            RegisterBroker(
                config.node_id,
                self.new_uuid(),
                self._end_points(),
                tuple(
                    FeatureRange(name=name, min_supported_version=low, max_supported_version=high)
                    for name, (low, high) in sorted(self.supported_features.items())
                ),
                tuple(self.log_dirs.directory_ids.values()),
                config.get_str("broker.rack") or None,
            )
        )
        await self.quorum.submit(UnfenceBroker(config.node_id, self._broker_epoch))
        self.producer_ids = ProducerIds(self._allocate_producer_ids)

    async def _start_partitions(self) -> None:
        config = self.config
        self.waiting_room = WaitingRoom()
        self.record_work = RecordWork(self.env.workers)
        self.partitions = PartitionHost(self.env, config, self.log_dirs, self.waiting_room, self.turns)
        self.partitions.on_opened_late = self._partitions_opened_late
        self.log_dirs.on_offline = self._directory_offline
        self.telemetry = ClientTelemetry(config.get_int("telemetry.max.bytes"))
        self.partitions.set_strays_aside(self.quorum.image)
        if ResourceType.BROKER in {resource.type for resource in self.image.configs}:
            self._apply_broker_configs(self.image)
        await self.partitions.recover(self.image)
        self._image_changed(MetadataImage(), self.quorum.image)
        # Deletions that the last run did not complete, before a client can create a topic of the same name.
        await self.partitions.sync_deletions()
        self.quorum.subscribe(self._image_changed)
        self._housekeeping = Housekeeping(self.env, config, self.log_dirs, self.partitions)
        self.log_cleaner = LogCleaner(self.env, config, self.log_dirs, self.partitions)

    async def _start_server(self) -> None:
        self._dispatcher = Dispatcher(self)
        self._server = new_server(self.env, self._dispatcher, self.config)
        try:
            addresses = [
                await self._server.listen(listener.host, listener.port, listener.name)
                for listener in self.config.broker_listeners
            ]
        except BaseException:
            await self._server.close()
            raise
        self.address = addresses[0]
        self._housekeeping.start()
        self.log_cleaner.start()

    async def stop(self) -> None:
        """Answers nothing more, writes everything down, and marks the directories as left in order."""
        self.log_dirs.on_offline = lambda path: None
        await self._server.close()
        await self._dispatcher.close()
        self.waiting_room.close()
        await self._housekeeping.stop()
        await self.log_cleaner.stop()
        await self.partitions.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.quorum.close()
        await asyncio.gather(*(self._sync(log) for log in list(self.log_dirs.logs.values())))
        high_watermarks = {hosted.topic_partition: hosted.leader.high_watermark for hosted in self.partitions}
        await self.env.workers.run(lambda: self.log_dirs.close(self._broker_epoch, high_watermarks))
        if self._owns_env:
            self.env.workers.close()
        logger.info("broker %d has stopped", self.config.node_id)

    async def _sync(self, log: Log) -> None:
        """Many logs side by side: one after the other, a stop with thousands of partitions would take long."""
        try:
            work = log.prepare_close()
            if work is not None:
                await self.env.workers.run(work.sync)
                log.completed(work)
        except OSError as error:  # closing the log meets it again, and takes the directory offline
            logger.error("%s cannot be synced: %s", log.topic_partition, error)

    def _check_metadata_dir(self) -> None:
        """A directory that is offline may not be written to, not even its metadata log."""
        path = self.config.metadata_log_dir.rstrip("/")
        if path in self.log_dirs.offline:
            raise RefusedDirectoryError(
                f"the metadata log lies in {path}, which is offline ({self.log_dirs.offline[path]}): fix the disk, or "
                "restore the metadata log to another directory and set metadata.log.dir"
            )

    def _directory_offline(self, path: str) -> None:
        """The broker ends where none of its directories is left, or its metadata log is gone, as Kafka does."""
        self.partitions.fail_offline()
        log_dirs = self.log_dirs
        if not log_dirs.paths:
            reasons = "; ".join(f"{offline}: {reason}" for offline, reason in log_dirs.offline.items())
            self._fail(LostDirectoryError(f"every data directory is offline ({reasons})"))
        elif path == self.config.metadata_log_dir.rstrip("/"):
            self._fail(
                LostDirectoryError(
                    f"the data directory of the metadata log is offline ({path}: {log_dirs.offline[path]})"
                )
            )

    def _fail(self, error: Exception) -> None:
        """The broker cannot go on: whoever runs it is to stop it."""
        if self.failed is not None and not self.failed.done():
            self.failed.set_result(error)

    # -- what handlers ask for

    @property
    def image(self) -> MetadataImage:
        return self.quorum.image

    @property
    def supported_features(self) -> Mapping[str, tuple[int, int]]:
        return SUPPORTED_FEATURES

    @cached_property
    def fetch_sessions(self) -> "FetchSessionCache":
        from ottla.core.fetch_session import FetchSessionCache  # with the first fetch, not with the start

        return FetchSessionCache(self.config.get_int("max.incremental.fetch.session.cache.slots"))

    @property
    def groups(self) -> "GroupCoordinator":
        """The group coordinator: made when it is first asked for, or has partitions to serve."""
        if self._groups is None:
            from ottla.broker.coordinators.groups import GroupCoordinator

            self._groups = GroupCoordinator(self)
            self._groups.image_changed(changes_since(MetadataImage(), self.image), self.image)
        return self._groups

    @property
    def transactions(self) -> "TransactionCoordinator":
        """The transaction coordinator: made when it is first asked for, or has partitions to serve."""
        if self._transactions is None:
            from ottla.broker.coordinators.transactions import TransactionCoordinator

            self._transactions = TransactionCoordinator(self)
            self._transactions.image_changed(changes_since(MetadataImage(), self.image), self.image)
        return self._transactions

    @property
    def fetch_max_bytes(self) -> int:
        return self.config.get_int("fetch.max.bytes")

    def new_uuid(self) -> uuid.UUID:
        return uuid.UUID(int=self.env.random.getrandbits(128), version=4)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs `work` beside the request that started it; it ends with the broker."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._work_ended)

    def answer_later(self, work: "Coroutine[Any, Any, T | Pending[T]]") -> Pending[T]:
        """What `work` returns, when it is there. An error that it raises fails the answer: nobody waits for nothing."""
        pending: Pending[T] = Pending()

        async def run() -> None:
            try:
                result = await work
            except Exception as error:
                pending.fail(error)
            else:
                pending.resolve(result)

        self.spawn(run())
        return pending

    def in_worker(self, work: Callable[[], T]) -> Pending[T]:
        """Reads or writes a long message: one at a time, because it takes much memory."""

        async def run() -> T:
            async with self._long_message:
                return await self.env.workers.run(work)

        return self.answer_later(run())

    def _work_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("work beside a request failed", exc_info=error)

    def nodes_as_seen_by(self, stream: Stream) -> list[Node]:
        """The brokers' addresses for a client. Our own is the one it reached us on, unless one is advertised.

        So nobody meets the trap of an advertised address that resolves only somewhere else.
        """
        nodes = []
        for broker in self.image.brokers.values():
            if broker.broker_id == self.config.node_id:
                advertised = self.config.advertised_listeners
                host, port = (advertised[0].host, advertised[0].port) if advertised else stream.local_address
                nodes.append(Node(broker.broker_id, host, port, broker.rack))
            elif broker.is_active and broker.end_points:
                end_point = broker.end_points[0]
                nodes.append(Node(broker.broker_id, end_point.host, end_point.port, broker.rack))
        return nodes

    def controller_as_seen_by_clients(self) -> int:
        """Clients send administrative requests to any broker; it is named so that old ones find one (KIP-590)."""
        return self.config.node_id

    async def create_topic_automatically(self, name: str) -> None:
        """Raises KafkaError where the topic cannot be made. One that is there by now is fine."""
        command = CreateTopics(
            (NewTopic(name, self.new_uuid()),), placement_start=self.env.random.getrandbits(31)
        )
        (result,) = await self.quorum.submit(command)
        if result.error.code not in (ErrorCode.none, ErrorCode.topic_already_exists):
            raise KafkaError(result.error.code, result.error.message or f"{name} could not be created")

    async def _allocate_producer_ids(self) -> ProducerIdBlock:
        return await self.quorum.submit(AllocateProducerIds(self.config.node_id, self._broker_epoch))

    # -- configuration

    def _end_points(self) -> tuple[Endpoint, ...]:
        advertised = self.config.advertised_listeners or self.config.broker_listeners
        return tuple(
            Endpoint(name=e.name, host=e.host or "localhost", port=e.port, security_protocol=0)
            for e in advertised
        )

    def _validate_configs(
        self, resource: ConfigResource, configs: Mapping[str, str], altered: Collection[str]
    ) -> str | None:
        """What is wrong with them. Raises KafkaError INVALID_CONFIG where they ask for what is not built."""
        problem = self._config_problem(resource, configs, altered)
        if (
            problem is None
            and (reason := unsupported_change_error(resource.type, configs, altered)) is not None
        ):
            raise KafkaError(ErrorCode.invalid_config, reason)
        return problem

    def _config_problem(
        self, resource: ConfigResource, configs: Mapping[str, str], altered: Collection[str]
    ) -> str | None:
        match resource.type:
            case ResourceType.TOPIC:
                return validate_topic_configs(configs, self.config)
            case ResourceType.GROUP:
                return validate_group_configs(configs, self.config)
            case ResourceType.BROKER:
                return validate_broker_configs(
                    configs, self.config, per_broker=resource.name != "", altered=altered
                )
        problems = (validate(resource.type, name, value) for name, value in configs.items())
        return next((problem for problem in problems if problem is not None), None)

    def _image_changed(self, old: MetadataImage, new: MetadataImage) -> Awaitable[None] | None:
        changes = changes_since(old, new)
        types = {resource.type for resource in changes.configs}
        if ResourceType.BROKER in types:
            self._apply_broker_configs(new)
        if ResourceType.CLIENT_METRICS in types:
            self.telemetry.configure(
                {
                    r.name: configs
                    for r, configs in new.configs.items()
                    if r.type == ResourceType.CLIENT_METRICS
                }
            )
        following = self.partitions.apply(changes, new)
        self._tell_coordinators(changes, types, new)
        if following is None:
            return self.partitions.sync_deletions() if changes.deleted else None
        return self._follow_partitions(following)

    async def _follow_partitions(self, following: Awaitable[None]) -> None:
        """Very many partitions are opened and deleted in turns; coordinators take over theirs after that."""
        await following
        self._partitions_opened_late()
        await self.partitions.sync_deletions()

    def _tell_coordinators(
        self, changes: MetadataChanges, config_types: set[int], image: MetadataImage
    ) -> None:
        """Groups first: transactions write to their partitions. One that is made here takes the image whole."""
        if self._groups is not None:
            if config_types & {ResourceType.BROKER, ResourceType.GROUP}:
                self._groups.reconfigure()
            self._groups.image_changed(changes, image)
        elif CONSUMER_OFFSETS in image.topics:
            _ = self.groups
        if self._transactions is not None:
            if ResourceType.BROKER in config_types:
                self._transactions.reconfigure()
            self._transactions.image_changed(changes, image)
        elif TRANSACTION_STATE in image.topics:
            _ = self.transactions

    def _partitions_opened_late(self) -> None:
        """Coordinators take over what they could not when the image came."""
        for coordinator in (self._groups, self._transactions):
            if coordinator is not None:
                coordinator.shards.follow(self.image)

    def _apply_broker_configs(self, image: MetadataImage) -> None:
        own = image.config(ResourceType.BROKER, str(self.config.node_id))
        default = image.config(ResourceType.BROKER, "")
        try:
            changed = self.config.apply_dynamic(own, default)
        except ConfigError as error:
            logger.error("dynamic broker configs are not applied: %s", "; ".join(error.errors))
            return
        for reason in rejection_errors(ResourceType.BROKER, {**default, **own}):
            logger.error("a dynamic broker config of the metadata has no effect: %s", reason)
        if changed:
            logger.info("broker configs changed: %s", ", ".join(sorted(changed)))
            self.partitions.reconfigure_all()
            if hasattr(self, "_server"):
                self._server.limits = server_limits(self.config)
                self.log_cleaner.look_now()
