"""The composition root: builds the services of one broker, starts them in order, and stops them in reverse order.

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

from ottla.broker.background_tasks import BackgroundTasks
from ottla.broker.config_validation import validate_configs
from ottla.broker.data_directories import directory_went_offline, identify_directories
from ottla.broker.delayed_operations import DelayedOperations
from ottla.broker.dispatch import Dispatcher
from ottla.broker.dynamic_configs import DynamicConfigs
from ottla.broker.fair_scheduler import FairScheduler
from ottla.broker.housekeeping import Housekeeping
from ottla.broker.lazy import Lazy
from ottla.broker.log_cleaner import LogCleaner
from ottla.broker.metadata_publisher import MetadataPublisher
from ottla.broker.partition_host import PartitionHost
from ottla.broker.producer_ids import ProducerIds
from ottla.broker.quorum.quorum import Quorum
from ottla.broker.quorum.settings import QuorumSettings
from ottla.broker.random_uuid import random_uuid
from ottla.broker.registration import register_broker
from ottla.broker.serial_thread import SerialThread
from ottla.broker.server import Server
from ottla.broker.server_settings import new_server, server_limits
from ottla.broker.services import BrokerServices
from ottla.core.client_telemetry import ClientTelemetry
from ottla.core.controller.changes import changes_since
from ottla.core.controller.commands import AllocateProducerIds
from ottla.core.controller.image import MetadataImage
from ottla.core.controller.settings import ControllerSettings
from ottla.env import Env
from ottla.env.real import real_env
from ottla.model.config import BrokerConfig, ConfigError, unsupported_errors
from ottla.storage.log import Log
from ottla.storage.log_dirs import LogDirs

if TYPE_CHECKING:
    from ottla.broker.coordinators.groups import GroupCoordinator
    from ottla.broker.coordinators.transactions import TransactionCoordinator
    from ottla.core.fetch_session import FetchSessionCache

logger = logging.getLogger("ottla.broker")


class Broker:
    """A broker that serves.

    `failed` is completed with the reason when the broker cannot go on: whoever started it must stop it then.
    """

    def __init__(
        self,
        services: BrokerServices,
        server: Server,
        dispatcher: Dispatcher,
        housekeeping: Housekeeping,
        log_cleaner: LogCleaner,
        *,
        address: tuple[str, int],
        broker_epoch: int,
        failed: "asyncio.Future[Exception]",
        owns_env: bool,
    ) -> None:
        self.services = services
        self.server = server
        self.housekeeping = housekeeping
        self.log_cleaner = log_cleaner
        self.address = address
        self.failed = failed
        self._dispatcher = dispatcher
        self._broker_epoch = broker_epoch
        self._owns_env = owns_env

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @classmethod
    async def start(cls, config: BrokerConfig, env: Env | None = None) -> Self:
        """Loads everything, and listens last. Raises ConfigError, UnusableDirectoryError, KafkaError, OSError."""
        if unsupported := unsupported_errors(config):
            raise ConfigError(unsupported)
        failed: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        fail = partial(_fail, failed)
        owns_env = env is None
        env = env or real_env()
        async with AsyncExitStack() as undo:
            if owns_env:
                undo.callback(env.threads.close)
            log_dirs = LogDirs(env.disk, config.log_dirs)
            undo.callback(log_dirs.release)
            cluster_id = identify_directories(env, config, log_dirs)
            quorum = _new_quorum(config, env, log_dirs, fail)
            undo.push_async_callback(quorum.close)
            await quorum.start()
            directory_ids = log_dirs.directory_ids.values()
            broker_epoch = await register_broker(quorum, config, random_uuid(env), directory_ids)
            services = _new_services(config, env, cluster_id, log_dirs, quorum, broker_epoch)
            undo.push_async_callback(services.tasks.close)
            log_dirs.on_offline = partial(directory_went_offline, config, log_dirs, services.partitions, fail)
            dynamic_configs = DynamicConfigs(config)
            await _start_partitions(services, dynamic_configs)
            if failed.done():
                raise failed.result()
            housekeeping = Housekeeping(env, config, log_dirs, services.partitions)
            log_cleaner = LogCleaner(env, config, log_dirs, services.partitions)
            dispatcher = Dispatcher(services)
            server = new_server(env, dispatcher, config)
            undo.push_async_callback(server.close)
            dynamic_configs.subscribe(partial(_limits_changed, server, config))
            dynamic_configs.subscribe(log_cleaner.configs_changed)
            address = await _listen(server, config)
            housekeeping.start()
            log_cleaner.start()
            undo.pop_all()
        logger.info("broker %d of cluster %s serves on %s:%d", config.node_id, cluster_id, *address)
        return cls(
            services,
            server,
            dispatcher,
            housekeeping,
            log_cleaner,
            address=address,
            broker_epoch=broker_epoch,
            failed=failed,
            owns_env=owns_env,
        )

    async def stop(self) -> None:
        """Stops serving, flushes every log, and marks the data directories as cleanly closed."""
        services, env = self.services, self.services.env
        log_dirs, partitions = services.log_dirs, services.partitions
        log_dirs.on_offline = lambda path: None
        await self.server.close()
        await self._dispatcher.close()
        services.delayed_operations.close()
        await self.housekeeping.stop()
        await self.log_cleaner.stop()
        await partitions.close()
        await services.tasks.close()
        await services.quorum.close()
        # Side by side: one after the other, thousands of logs would take long.
        await asyncio.gather(*(_flush(env, log) for log in list(log_dirs.logs.values())))
        high_watermarks = {hosted.topic_partition: hosted.leader.high_watermark for hosted in partitions}
        await env.threads.run(lambda: log_dirs.close(self._broker_epoch, high_watermarks))
        if self._owns_env:
            env.threads.close()
        logger.info("broker %d has stopped", services.config.node_id)


def _fail(failed: "asyncio.Future[Exception]", error: Exception) -> None:
    if not failed.done():
        failed.set_result(error)


def _new_quorum(
    config: BrokerConfig, env: Env, log_dirs: LogDirs, fail: Callable[[Exception], None]
) -> Quorum:
    return Quorum(
        env,
        config.metadata_log_dir,
        node_id=config.node_id,
        controller=ControllerSettings(
            partial(validate_configs, config),
            num_partitions=config.get_int("num.partitions"),
            default_replication_factor=config.get_int("default.replication.factor"),
        ),
        settings=QuorumSettings.from_config(config),
        on_failure=fail,
        partitions=log_dirs.partitions,
    )


def _new_services(
    config: BrokerConfig, env: Env, cluster_id: str, log_dirs: LogDirs, quorum: Quorum, broker_epoch: int
) -> BrokerServices:
    tasks = BackgroundTasks()
    delayed_operations = DelayedOperations()
    services = BrokerServices(
        config=config,
        env=env,
        cluster_id=cluster_id,
        metadata=quorum,
        controller=quorum,
        quorum=quorum,
        tasks=tasks,
        scheduler=FairScheduler(env.clock),
        message_thread=SerialThread(env.threads, tasks),
        log_dirs=log_dirs,
        partitions=PartitionHost(env, config, log_dirs, delayed_operations),
        delayed_operations=delayed_operations,
        record_thread=SerialThread(env.threads, tasks),
        producer_ids=ProducerIds(lambda: quorum.submit(AllocateProducerIds(config.node_id, broker_epoch))),
        telemetry=ClientTelemetry(config.get_int("telemetry.max.bytes")),
        fetch_sessions=Lazy(lambda: _new_fetch_sessions(config)),
        groups=Lazy(lambda: _new_group_coordinator(services)),
        transactions=Lazy(lambda: _new_transaction_coordinator(services)),
    )
    return services


# Imported with the first request that needs them: a broker without groups and transactions starts faster.


def _new_fetch_sessions(config: BrokerConfig) -> "FetchSessionCache":
    from ottla.core.fetch_session import FetchSessionCache

    return FetchSessionCache(config.get_int("max.incremental.fetch.session.cache.slots"))


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
    services.partitions.on_opened_late = publisher.partitions_opened
    await publisher.load(services.metadata.image)
    services.quorum.subscribe(publisher.publish)


def _limits_changed(server: Server, config: BrokerConfig) -> None:
    server.limits = server_limits(config)


async def _listen(server: Server, config: BrokerConfig) -> tuple[str, int]:
    """Binds all listeners. Returns the address of the first one."""
    addresses = [
        await server.listen(listener.host, listener.port, listener.name)
        for listener in config.broker_listeners
    ]
    return addresses[0]


async def _flush(env: Env, log: Log) -> None:
    try:
        work = log.prepare_close()
        if work is not None:
            await env.threads.run(work.sync)
            log.complete_flush(work)
    except OSError as error:  # closing the log fails likewise, and takes the directory offline
        logger.error("%s cannot be flushed: %s", log.topic_partition, error)
