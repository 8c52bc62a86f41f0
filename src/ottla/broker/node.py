"""The composition root of a broker: builds its services, starts them in order, and stops them in reverse order.

    async with await Broker.start(BrokerConfig({"log.dirs": "data", "listeners": "PLAINTEXT://127.0.0.1:0"})) as broker:
        print(broker.address)

There is no global state: several brokers can run in one process, each with its own directories and port.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ottla.broker.client_view import broker_address
from ottla.broker.cordoned_directories import CordonedDirectories
from ottla.broker.data_directories import directory_went_offline
from ottla.broker.delayed_operations import DelayedOperations
from ottla.broker.directory_assignments import DirectoryAssignments
from ottla.broker.dispatch import Dispatcher
from ottla.broker.dynamic_configs import DynamicConfigs
from ottla.broker.forwarding import VOTER_CHANGES
from ottla.broker.housekeeping import Housekeeping
from ottla.broker.lazy import Lazy
from ottla.broker.lifecycle import BrokerLifecycle, LifecycleSettings
from ottla.broker.log_cleaner import LogCleaner
from ottla.broker.metadata_publisher import MetadataPublisher
from ottla.broker.partition_host import PartitionHost
from ottla.broker.producer_ids import ProducerIds
from ottla.broker.quorum.voters import must_find_voters
from ottla.broker.quorum_node import QuorumNode, run_unless_failed, set_failure
from ottla.broker.random_uuid import random_uuid
from ottla.broker.registration import advertised_end_points
from ottla.broker.replication.replication import Replication, load_modules
from ottla.broker.replication.throttles import ReplicationThrottles
from ottla.broker.serial_thread import SerialThread
from ottla.broker.server import Server
from ottla.broker.server_settings import server_limits
from ottla.broker.services import BrokerServices, NodeServices
from ottla.core.client_telemetry import ClientTelemetry
from ottla.core.controller.changes import changes_since
from ottla.core.controller.commands import AllocateProducerIds, RegisterBroker
from ottla.core.controller.image import MetadataImage
from ottla.core.controller.settings import supported_feature_ranges
from ottla.env import Env
from ottla.env.real import real_env
from ottla.model.config import BrokerConfig, ConfigError, takes_client_metrics, unsupported_errors
from ottla.storage.disk_errors import is_disk_failure
from ottla.storage.log import Log
from ottla.storage.log_dirs import LogDirs

if TYPE_CHECKING:
    from ottla.broker.coordinators.groups import GroupCoordinator
    from ottla.broker.coordinators.transactions import TransactionCoordinator
    from ottla.broker.metrics.clients import ClientMetrics
    from ottla.broker.metrics.node_metrics import NodeMetrics
    from ottla.core.fetch_session import FetchSessionCache

logger = logging.getLogger("ottla.broker")


class Broker:
    """A node with the broker role. It serves clients when `start` returns.

    `failed` is completed with the reason when the broker cannot go on: whoever started it must stop it then.
    """

    def __init__(
        self,
        node: QuorumNode,
        services: BrokerServices,
        lifecycle: BrokerLifecycle,
        failed: "asyncio.Future[Exception]",
        *,
        owns_env: bool,
    ) -> None:
        config, env = node.config, node.env
        self.services = services
        self.failed = failed
        self.dynamic_configs = DynamicConfigs(config)
        self.housekeeping = Housekeeping(env, config, node.log_dirs, services.partitions)
        self.log_cleaner = LogCleaner(env, config, node.log_dirs, services.partitions)
        self._replication = Replication(
            env,
            config,
            services.partitions,
            services.tasks,
            services.throttles.follower,
            connect=partial(node.new_connections, partial(broker_address, services)),
            new_controller_client=node.new_controller_client,
            broker_epoch=lambda: lifecycle.broker_epoch,
        )
        self._directories = DirectoryAssignments(
            config.node_id,
            node.log_dirs,
            services.tasks,
            new_controller_client=node.new_controller_client,
            broker_epoch=lambda: lifecycle.broker_epoch,
        )
        services.partitions.on_placed = self._directories.check
        self._dispatcher = Dispatcher(services)
        self.server = node.new_server(self._dispatcher)
        if node.metrics is not None:
            node.metrics.add_broker(services, self.server, self.log_cleaner)
        self.lifecycle = lifecycle
        self._node = node
        self._owns_env = owns_env
        self._addresses: list[tuple[str, int]] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def address(self) -> tuple[str, int]:
        """The address of the first listener."""
        return self._addresses[0]

    @property
    def metrics(self) -> "NodeMetrics | None":
        return self._node.metrics

    @property
    def env(self) -> Env:
        return self._node.env

    @classmethod
    async def start(
        cls,
        config: BrokerConfig,
        env: Env | None = None,
        failed: "asyncio.Future[Exception] | None" = None,
    ) -> Self:
        """Returns when the broker serves.

        Raises ConfigError, UnusableDirectoryError, KafkaError, OSError. If the broker fails while it starts, `failed`
        is completed, and its result is raised.
        """
        if unsupported := unsupported_errors(config):
            raise ConfigError(unsupported)
        failed = failed or asyncio.get_running_loop().create_future()
        fail = partial(set_failure, failed)
        owns_env = env is None
        env = env or real_env()
        async with AsyncExitStack() as undo:
            if owns_env:
                undo.callback(env.threads.close)
            log_dirs = LogDirs(env.disk, config.log_dirs)
            undo.callback(log_dirs.release)
            if must_find_voters(config):
                from ottla.broker.quorum.discovery import with_voters

                config = await with_voters(config, env)
            node = QuorumNode(config, env, fail, log_dirs)
            controller = node.new_controller_client()
            lifecycle = BrokerLifecycle(controller, node.quorum, LifecycleSettings.from_config(config), fail)
            controller.on_connection_lost(lifecycle.controller_disconnected)
            services = _new_services(node, lifecycle)
            broker = cls(node, services, lifecycle, failed, owns_env=owns_env)
            undo.push_async_callback(broker._undo_start)
            await run_unless_failed(broker._start(fail), failed)
            undo.pop_all()
        logger.info(
            "broker %d of cluster %s serves on %s:%d", config.node_id, node.cluster_id, *broker.address
        )
        return broker

    async def _start(self, fail: Callable[[Exception], None]) -> None:
        """In Kafka's order: bind, register, catch up with the metadata, open the logs, be unfenced, serve."""
        node, services, lifecycle = self._node, self.services, self.lifecycle
        config, log_dirs = node.config, node.log_dirs
        for listener in config.broker_listeners:
            self._addresses.append(await self.server.bind(listener.host, listener.port, listener.name))
        if node.has_other_voters:
            await node.env.threads.run(load_modules)
        node.quorum.on_new_leader = lifecycle.controller_changed
        await node.start()
        await lifecycle.register(self._registration())
        await lifecycle.catch_up()
        log_dirs.on_offline = partial(self._directory_went_offline, fail)
        self._report_offline_directories()  # of a failure since the registration
        self._cordoned = CordonedDirectories(config, log_dirs, lifecycle, services.metadata.image)
        self.dynamic_configs.subscribe(self._cordoned.apply)
        await _start_partitions(services, self.dynamic_configs)
        services.quorum.subscribe(self._cordoned.image_changed)
        self._cordoned.start_reports()
        self.dynamic_configs.subscribe(partial(_limits_changed, self.server, config))
        self.dynamic_configs.subscribe(self.log_cleaner.configs_changed)
        await lifecycle.unfence()
        self.server.serve()
        self.housekeeping.start()
        self.log_cleaner.start()
        if node.metrics is not None:
            node.metrics.serve()

    def _directory_went_offline(self, fail: Callable[[Exception], None], path: str) -> None:
        services = self.services
        directory_went_offline(services.config, services.log_dirs, services.partitions, fail, path)
        self._cordoned.apply()
        self._report_offline_directories()

    def _report_offline_directories(self) -> None:
        """The controller elects other leaders for the partitions in them (KIP-858)."""
        if offline := self._directories.offline_ids:
            self.lifecycle.directories_went_offline(offline)

    async def _undo_start(self) -> None:
        await self.server.close()
        await self.lifecycle.close()
        await self._node.close()

    def _registration(self) -> RegisterBroker:
        node, config = self._node, self._node.config
        return RegisterBroker(
            config.node_id,
            random_uuid(node.env),
            advertised_end_points(
                config.broker_listeners,
                config.advertised_listeners,
                [port for _, port in self._addresses],
                node.env.network,
            ),
            supported_feature_ranges(),
            tuple(node.log_dirs.directory_ids.values()),
            config.get_str("broker.rack") or None,
            previous_broker_epoch=node.log_dirs.last_broker_epoch,
            is_local=node.controller.is_local,
        )

    async def stop(self) -> None:
        """Hands its partitions over, stops serving, flushes every log, and marks the directories as cleanly closed."""
        services, env = self.services, self.services.env
        log_dirs, partitions = services.log_dirs, services.partitions
        log_dirs.on_offline = lambda path: None
        if self._can_hand_over():
            await self.lifecycle.shut_down()
        await self.server.close()
        await self._dispatcher.close()
        services.delayed_operations.close()
        await self.housekeeping.stop()
        await self.log_cleaner.stop()
        await self.lifecycle.close()
        await self._replication.close()
        await partitions.close()
        await self._node.close()
        # Side by side: one after the other, thousands of logs would take long.
        await asyncio.gather(*(_flush(env, log) for log in list(log_dirs.logs.values())))
        high_watermarks = {hosted.topic_partition: hosted.role.high_watermark for hosted in partitions}
        epoch = self.lifecycle.broker_epoch
        await env.threads.run(lambda: log_dirs.close(epoch, high_watermarks))
        if self._owns_env:
            env.threads.close()
        logger.info("broker %d has stopped", services.config.node_id)

    def _can_hand_over(self) -> bool:
        """Whether a controlled shutdown has a purpose: there is another broker that may take over partitions."""
        config, image = self.services.config, self.services.metadata.image
        others = (broker for broker in image.brokers.values() if broker.broker_id != config.node_id)
        return config.get_bool("controlled.shutdown.enable") and any(broker.is_active for broker in others)


def _new_services(node: QuorumNode, lifecycle: BrokerLifecycle) -> BrokerServices:
    config, env, shared = node.config, node.env, node.services
    delayed_operations = DelayedOperations()
    for_producer_ids = node.new_controller_client()  # they must not wait behind long requests of clients
    telemetry_thread = SerialThread(env.threads, shared.tasks)
    services = BrokerServices(
        config=config,
        env=env,
        cluster_id=node.cluster_id,
        metadata=shared.metadata,
        controller=shared.controller,
        quorum=shared.quorum,
        tasks=shared.tasks,
        scheduler=shared.scheduler,
        message_thread=shared.message_thread,
        log_dirs=node.log_dirs,
        partitions=PartitionHost(env, config, node.log_dirs, delayed_operations),
        delayed_operations=delayed_operations,
        record_thread=SerialThread(env.threads, shared.tasks),
        telemetry_thread=telemetry_thread,
        producer_ids=ProducerIds(
            shared.tasks,
            lambda: for_producer_ids.submit(AllocateProducerIds(config.node_id, lifecycle.broker_epoch)),
        ),
        topic_creation=node.new_controller_client(),
        voter_changes={key: node.new_controller_client() for key in VOTER_CHANGES},
        throttles=ReplicationThrottles(config),
        connect_to_brokers=lambda: node.new_connections(partial(broker_address, services)),
        telemetry=ClientTelemetry(config.get_int("telemetry.max.bytes")),
        fetch_sessions=Lazy(lambda: _new_fetch_sessions(config, delayed_operations)),
        groups=Lazy(lambda: _new_group_coordinator(services)),
        transactions=Lazy(lambda: _new_transaction_coordinator(services)),
        client_metrics=_new_client_metrics(shared, telemetry_thread),
    )
    return services


def _new_client_metrics(services: NodeServices, thread: SerialThread) -> "ClientMetrics | None":
    if not takes_client_metrics(services.config):
        return None
    from ottla.broker.metrics.clients import ClientMetrics

    return ClientMetrics(services, thread)


# Imported with the first request that needs them: a broker without groups and transactions starts faster.


def _new_fetch_sessions(config: BrokerConfig, delayed_operations: DelayedOperations) -> "FetchSessionCache":
    from ottla.core.fetch_session import FetchSessionCache

    return FetchSessionCache(
        config.get_int("max.incremental.fetch.session.cache.slots"), on_ready=delayed_operations.notify
    )


def _new_group_coordinator(services: BrokerServices) -> "GroupCoordinator":
    from ottla.broker.coordinators.groups import GroupCoordinator

    coordinator, image = GroupCoordinator(services), services.metadata.image
    coordinator.image_changed(changes_since(MetadataImage(), image), image)
    return coordinator


def _new_transaction_coordinator(services: BrokerServices) -> "TransactionCoordinator":
    from ottla.broker.coordinators.transactions import TransactionCoordinator

    coordinator, image = TransactionCoordinator(services), services.metadata.image
    coordinator.image_changed(changes_since(MetadataImage(), image), image)
    return coordinator


async def _start_partitions(services: BrokerServices, dynamic_configs: DynamicConfigs) -> None:
    publisher = MetadataPublisher(services, dynamic_configs)
    dynamic_configs.subscribe(services.partitions.reconfigure_all)
    dynamic_configs.subscribe(services.throttles.rates_changed)
    services.partitions.on_opened_late = publisher.partitions_opened
    for removal in services.log_dirs.clean_shutdown_removals():
        try:
            await services.env.threads.run(removal.sync)
        except OSError as error:
            if not is_disk_failure(error):
                raise
            services.log_dirs.handle_checkpoint_error(removal, error)
    loaded = services.metadata.image
    await publisher.load(loaded)
    while (image := services.metadata.image) is not loaded:  # it has changed while the logs were opened
        if (work := publisher.publish(loaded, image)) is not None:
            await work
        loaded = image
    services.quorum.subscribe(publisher.publish)


def _limits_changed(server: Server, config: BrokerConfig) -> None:
    server.limits = server_limits(config)


async def _flush(env: Env, log: Log) -> None:
    try:
        work = log.prepare_close()
        if work is not None:
            await env.threads.run(work.sync)
            log.complete_flush(work)
    except OSError as error:  # closing the log fails likewise, and takes the directory offline
        logger.error("%s cannot be flushed: %s", log.topic_partition, error)
