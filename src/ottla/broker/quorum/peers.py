"""The other nodes of the quorum, over the network."""

import asyncio
import logging
from collections.abc import Sequence
from typing import NamedTuple

from ottla.broker.quorum.wire_client import (
    API_OF,
    FETCH_WAIT_MS,
    PRE_VOTE_FROM,
    Sender,
    decode_response,
    encode_request,
)
from ottla.core.raft.messages import NO_NODE, Request, Response, VoteRequest, VoteResponse
from ottla.core.raft.voter_set import VoterEndpoint
from ottla.model.config import BrokerConfig
from ottla.model.errors import ErrorCode, KafkaError
from ottla.rpc.node_connections import NodeConnections

logger = logging.getLogger("ottla.quorum")


class PeerSettings(NamedTuple):
    """Kafka's `controller.quorum.*` configs, with their defaults."""

    request_timeout_ms: int = 2_000
    fetch_max_bytes: int = 1 << 20
    fetch_snapshot_max_bytes: int = 1 << 20
    fetch_wait_ms: int = FETCH_WAIT_MS

    @classmethod
    def from_config(cls, config: BrokerConfig) -> "PeerSettings":
        """With longer timeouts than Kafka's, an idle node asks less often: four times in each."""
        request_timeout_ms = config.get_int("controller.quorum.request.timeout.ms")
        shortest_ms = min(request_timeout_ms, config.get_int("controller.quorum.fetch.timeout.ms"))
        return cls(
            request_timeout_ms=request_timeout_ms,
            fetch_wait_ms=max(FETCH_WAIT_MS, shortest_ms // 4),
            fetch_max_bytes=config.get_int("controller.quorum.fetch.max.bytes"),
            fetch_snapshot_max_bytes=config.get_int("controller.quorum.fetch.snapshot.max.bytes"),
        )


class QuorumPeers:
    """Implements `ottla.broker.quorum.raft_driver.Peers`. It owns `connections`; `endpoints` are this node's own.

    `learned` gets the endpoints of leaders that other nodes name. One that does not respond is forgotten: the voters in
    the log may have a newer one.
    """

    def __init__(
        self,
        connections: NodeConnections,
        cluster_id: str,
        settings: PeerSettings,
        endpoints: Sequence[VoterEndpoint] = (),
        learned: dict[int, VoterEndpoint] | None = None,
        listener: str = "",
    ) -> None:
        self._learned = {} if learned is None else learned
        self._listener = listener
        self._connections = connections
        self._sender = Sender(
            cluster_id,
            endpoints,
            settings.fetch_max_bytes,
            settings.fetch_snapshot_max_bytes,
            settings.fetch_wait_ms,
        )
        self._timeout_s = settings.request_timeout_ms / 1000
        self._unavailable: set[int] = set()
        self._of_other_cluster: set[int] = set()

    def refusal(self, voters: Sequence[int]) -> KafkaError | None:
        """Why this node will never be part of the quorum: most of the voters say that they are of another cluster.

        A single one may be the node that is wrong.
        """
        refusing = sorted(self._of_other_cluster.intersection(voters))
        if len(refusing) <= len(voters) // 2:
            return None
        return KafkaError(
            ErrorCode.inconsistent_cluster_id,
            f"the controllers {refusing} belong to another cluster: this node belongs to {self._sender.cluster_id}",
        )

    async def call(self, node_id: int, request: Request) -> Response:
        try:
            response = await self._call(node_id, request)
        except (OSError, KafkaError) as error:
            self._note_failure(node_id, error)
            self._learned.pop(node_id, None)
            if isinstance(error, KafkaError) and error.code is ErrorCode.inconsistent_cluster_id:
                self._of_other_cluster.add(node_id)
            raise
        self._of_other_cluster.discard(node_id)
        if node_id in self._unavailable:
            self._unavailable.discard(node_id)
            logger.info("node %d of the quorum responds again", node_id)
        return response

    async def close(self) -> None:
        self._connections.close()

    async def _call(self, node_id: int, request: Request) -> Response:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._timeout_s
        api = API_OF[type(request)]
        version = await self._connections.latest_version(
            node_id, api.key, self._timeout_s, at_least=api.min_version
        )
        if isinstance(request, VoteRequest) and request.is_pre_vote and version < PRE_VOTE_FROM:
            # KIP-996: a node without pre-votes does not object to an election.
            return VoteResponse(request.epoch, NO_NODE, is_granted=True)
        body = await self._connections.call_body(
            node_id,
            api.key,
            version,
            encode_request(self._sender, node_id, request, version),
            deadline_s - loop.time(),
        )
        return decode_response(request, version, body, self._learn)

    def set_endpoints(self, endpoints: Sequence[VoterEndpoint]) -> None:
        """This node's own, once its listeners are bound."""
        self._sender = self._sender._replace(endpoints=endpoints)

    def _learn(self, node_id: int, host: str, port: int) -> None:
        self._learned[node_id] = VoterEndpoint(self._listener, host, port)

    def _note_failure(self, node_id: int, error: Exception) -> None:
        """Logs the first of several failures: a node that is down is asked many times a second."""
        if node_id in self._unavailable:
            return
        self._unavailable.add(node_id)
        if isinstance(error, KafkaError) and error.code is ErrorCode.inconsistent_cluster_id:
            logger.error(
                "node %d belongs to another cluster: this one is %s. Check controller.quorum.voters and the cluster id "
                "in meta.properties of both nodes",
                node_id,
                self._sender.cluster_id,
            )
        else:
            logger.warning("node %d of the quorum is not available: %s", node_id, error)
