"""KIP-392: a simulated consumer asks the leader when a follower does not have an offset."""

import asyncio
from datetime import timedelta
from random import Random
from typing import Any
from uuid import UUID

import pytest
from kio.schema.fetch.v17.response import FetchableTopicResponse, FetchResponse, PartitionData

from ottla.model.errors import ErrorCode
from ottla.sim.cluster_client import ClusterClient, NoLeader

TOPIC_ID = UUID(int=1)
PARTITION: tuple[UUID, int] = (TOPIC_ID, 0)


def rejection() -> FetchResponse:
    data = PartitionData(
        partition_index=0,
        error_code=ErrorCode.offset_out_of_range,
        high_watermark=-1,
        aborted_transactions=(),
        records=None,
    )
    topic = FetchableTopicResponse(topic_id=TOPIC_ID, partitions=(data,))
    return FetchResponse(throttle_time=timedelta(), error_code=ErrorCode.none, responses=(topic,))


class Client(ClusterClient):
    """Its requests go to a follower, which rejects them. Meanwhile it forgets its followers, if `forgets` is set."""

    def __init__(self, *, forgets: bool) -> None:
        super().__init__(None, [("node-1", 9092)], "client", Random(0))  # type: ignore[arg-type]
        self.rack = "rack"
        self._followers[PARTITION] = 2
        self._forgets = forgets

    async def _route(self, message: Any) -> tuple[tuple[str, int], Any]:
        return ("node-2", 9092), message

    def client_of(self, address: tuple[str, int]) -> Any:
        return self.Follower(self)

    class Follower:
        def __init__(self, client: "Client") -> None:
            self._client = client

        async def request(self, message: Any, timeout_s: float | None) -> FetchResponse:
            if self._client._forgets:
                self._client.rack = ""
                self._client._followers.clear()
            return rejection()


@pytest.mark.parametrize("forgets", [False, True])
def test_an_offset_that_a_follower_does_not_have_is_asked_of_the_leader(forgets: bool) -> None:
    client = Client(forgets=forgets)
    with pytest.raises(NoLeader, match="does not have the offset"):
        asyncio.run(client.fetch(TOPIC_ID, 0, 7))
    assert PARTITION not in client._followers
