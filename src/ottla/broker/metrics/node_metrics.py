"""The metrics of one node: its collectors and their endpoint."""

from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.connection import Dispatch
from ottla.broker.metrics.cluster import ControllerCollector, raft_collector
from ottla.broker.metrics.endpoint import PATH, MetricsEndpoint
from ottla.broker.metrics.measured_connection import MeasuredConnection
from ottla.broker.metrics.requests import RequestMetrics
from ottla.broker.metrics.scrape import scrape
from ottla.broker.services import BrokerServices, NodeServices
from ottla.metrics import Collector, check_families
from ottla.model.config import ConfigError
from ottla.model.http_address import parse_http_address

if TYPE_CHECKING:
    from ottla.broker.log_cleaner import LogCleaner
    from ottla.broker.server import Server


class NodeMetrics:
    def __init__(self, services: NodeServices) -> None:
        address = parse_http_address(services.config.get_str("ottla.metrics.address"))
        assert address is not None, "the config is checked"
        self._address = address
        monotonic_ns = services.env.clock.monotonic_ns
        self._requests = RequestMetrics(monotonic_ns)
        self.new_connection = partial(MeasuredConnection, monotonic_ns)
        self._collectors: list[Collector] = []
        self._endpoint = MetricsEndpoint(
            services.env.network, partial(scrape, self._collectors, services.scheduler)
        )
        self.add(self._requests, raft_collector(services.quorum))
        if "controller" in services.config.get_list("process.roles"):
            self.add(ControllerCollector(services.quorum))

    @property
    def url(self) -> str:
        return f"http://{self._endpoint.address}{PATH}"

    def add(self, *collectors: Collector) -> None:
        self._collectors += collectors
        check_families(family for collector in self._collectors for family in collector.families)

    def add_broker(self, services: BrokerServices, server: "Server", cleaner: "LogCleaner") -> None:
        """The node has the broker role."""
        from ottla.broker.metrics.broker import broker_collector
        from ottla.broker.metrics.disks import DisksCollector
        from ottla.broker.metrics.groups import GroupsCollector
        from ottla.broker.metrics.partitions import PartitionsCollector
        from ottla.broker.metrics.topics import TopicsCollector

        self.add(
            TopicsCollector(services.partitions.counters),
            PartitionsCollector(services),
            GroupsCollector(services),
            broker_collector(services, server, cleaner),
            DisksCollector(services.env, services.log_dirs),
        )
        if isinstance(services.client_metrics, Collector):
            self.add(services.client_metrics)

    def measured(self, dispatch: Dispatch) -> Dispatch:
        """`dispatch`, with the requests that it serves measured."""
        return self._requests.measured(dispatch)

    async def bind(self) -> None:
        """Raises ConfigError if the address is not available."""
        try:
            await self._endpoint.bind(self._address)
        except OSError as error:
            raise ConfigError(
                [
                    f"--metrics cannot listen on {self._address}: {error.strerror or error}. Choose another address."
                ]
            ) from None

    def serve(self) -> None:
        self._endpoint.serve()

    async def close(self) -> None:
        await self._endpoint.close()
