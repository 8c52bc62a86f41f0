"""Finds the voters of a quorum through `controller.quorum.bootstrap.servers`, for a broker that knows some of them.

Only the leader knows all voters (DescribeQuorum). Every controller names the leader and the controllers that have
registered, with their addresses (DescribeCluster on its listener, KIP-919). These may be a part of the voters only, or
have others among them: a broker that took them for the voters might never find the leader.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from kio.schema.describe_cluster.v1.request import DescribeClusterRequest
from kio.schema.describe_cluster.v1.response import DescribeClusterResponse
from kio.schema.describe_quorum.v1 import request as v1_request
from kio.schema.describe_quorum.v1 import response as v1_response
from kio.schema.describe_quorum.v2 import request as v2_request
from kio.schema.describe_quorum.v2 import response as v2_response

from ottla.broker.quorum.voters import controller_listener_name
from ottla.env import Env
from ottla.model.config import BrokerConfig
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import METADATA_TOPIC
from ottla.protocol.api_keys import ApiKey
from ottla.rpc.addresses import Address, parse_bootstrap_servers
from ottla.rpc.messages import decode_message, encode_message
from ottla.rpc.node_connection import NodeConnection

logger = logging.getLogger("ottla.quorum")

_CONTROLLERS = 2
_REQUEST_TIMEOUT_S = 2.0
_RETRY_S = 0.5
_UNKNOWN = Address("0.0.0.0", 0)  # the broker learns it when the voter registers


async def with_voters(config: BrokerConfig, env: Env) -> BrokerConfig:
    """`config` with the voters of the quorum. Raises KafkaError if no leader is found in time."""
    servers = config.get_list("controller.quorum.bootstrap.servers")
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + config.get_int("initial.broker.registration.timeout.ms") / 1000
    reason: Exception | None = None
    while loop.time() < deadline_s:
        search = _Search(env, controller_listener_name(config), parse_bootstrap_servers(",".join(servers)))
        voters = await search.run()
        if voters:
            logger.info("the voters of the quorum are %s", voters)
            return BrokerConfig({**config.static, "controller.quorum.voters": voters})
        reason = search.reason or reason
        await asyncio.sleep(_RETRY_S)
    raise KafkaError(
        ErrorCode.not_controller,
        f"no controller at {','.join(servers)} names the voters of the quorum ({reason}). Check "
        "controller.quorum.bootstrap.servers, and that a majority of the controllers runs",
    )


class _Search:
    """Asks each controller once, the leader as soon as it is known. `reason` is why the last one did not help."""

    def __init__(self, env: Env, listener: str, servers: Iterable[Address]) -> None:
        self.reason: Exception | None = None
        self._env = env
        self._listener = listener
        self._to_ask = list(servers)
        self._asked: set[Address] = set()
        self._registered: dict[int, Address] = {}

    async def run(self) -> str:
        """All voters, as in `controller.quorum.voters`; empty if the leader was not found."""
        while self._to_ask:
            address = self._to_ask.pop(0)
            if address in self._asked:
                continue
            self._asked.add(address)
            connection = NodeConnection(self._env.network, address, "discovery")
            try:
                await self._ask_for_controllers(connection)
                return await self._ask_for_voters(connection)
            except (OSError, KafkaError) as error:
                self.reason = error
            finally:
                connection.close()
        return ""

    async def _ask_for_controllers(self, connection: NodeConnection) -> None:
        request = DescribeClusterRequest(
            include_cluster_authorized_operations=False, endpoint_type=_CONTROLLERS
        )
        response = await _call(connection, request, DescribeClusterResponse)
        if response.error_code is not ErrorCode.none:
            text = response.error_message or f"{connection.address} is no controller"
            raise KafkaError(response.error_code, text)
        found = {int(node.broker_id): Address(node.host, node.port) for node in response.brokers}
        self._registered |= found
        self._to_ask += found.values()
        leader = found.get(int(response.controller_id))
        if leader is not None:
            self._to_ask.insert(0, leader)

    async def _ask_for_voters(self, connection: NodeConnection) -> str:
        """Raises KafkaError if this controller does not lead."""
        versions = await connection.versions(_REQUEST_TIMEOUT_S)
        has_addresses = versions.get(ApiKey.DESCRIBE_QUORUM, (0, 0))[1] >= 2  # Kafka 3.9
        ask, answer = (v2_request, v2_response) if has_addresses else (v1_request, v1_response)
        partition = ask.PartitionData(partition_index=0)
        topic = ask.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,))
        request = ask.DescribeQuorumRequest(topics=(topic,))
        response = await _call(connection, request, answer.DescribeQuorumResponse)
        described = response.topics[0].partitions[0] if response.topics else None
        code = response.error_code if described is None else described.error_code
        if described is None or code is not ErrorCode.none or not described.current_voters:
            raise KafkaError(code, f"{connection.address} does not describe the quorum: {code.name}")
        addresses = {**self._registered, **self._addresses(getattr(response, "nodes", ()))}
        voters = sorted(int(voter.replica_id) for voter in described.current_voters)
        return _as_config({voter: addresses.get(voter, _UNKNOWN) for voter in voters})

    def _addresses(self, nodes: Iterable[v2_response.Node]) -> dict[int, Address]:
        found = {}
        for node in nodes:
            same = [each for each in node.listeners if each.name.upper() == self._listener]
            for listener in (same or node.listeners)[:1]:
                found[int(node.node_id)] = Address(listener.host, listener.port)
        return found


async def _call(connection: NodeConnection, request: Any, response_type: type[Any]) -> Any:
    body = await connection.call(
        ApiKey(request.__api_key__), request.__version__, encode_message(request), _REQUEST_TIMEOUT_S
    )
    return decode_message(response_type, body)


def _as_config(voters: Mapping[int, Address]) -> str:
    return ",".join(
        f"{node_id}@[{host}]:{port}" if ":" in host else f"{node_id}@{host}:{port}"
        for node_id, (host, port) in voters.items()
    )
