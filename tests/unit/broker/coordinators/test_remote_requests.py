"""Markers and verifications that another broker has to serve. It serves one request at a time for each connection."""

import asyncio

from kio.schema.add_partitions_to_txn.v5.response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from kio.schema.types import ProducerId, TopicName, TransactionalId
from kio.schema.write_txn_markers.v2.response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from kio.static.primitive import i32
from tests.unit.broker.broker_bench import Bench, on_broker, until
from tests.unit.broker.roles import OTHER, OTHER_ADDRESS, register_other
from tests.unit.rpc.node_server import Asked, NodeServer, ServerSide

from ottla.broker.coordinators.remote_markers import MarkerResults, RemoteMarkers
from ottla.broker.coordinators.remote_verification import (
    PartitionsToVerify,
    RemoteVerification,
    VerificationCodes,
)
from ottla.broker.group_requests import NO_THROTTLE
from ottla.broker.promise import Promise
from ottla.core.partition.leader import TransactionMarker
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition
from ottla.protocol.api_keys import ApiKey
from ottla.rpc.messages import encode_message

PARTITION = TopicPartition("journal", 0)
VERIFIED = encode_message(
    AddPartitionsToTxnResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        results_by_transaction=(
            AddPartitionsToTxnResult(
                transactional_id=TransactionalId("tx"),
                topic_results=(
                    AddPartitionsToTxnTopicResult(
                        name=TopicName("journal"),
                        results_by_partition=(
                            AddPartitionsToTxnPartitionResult(
                                partition_index=i32(0), partition_error_code=ErrorCode.none
                            ),
                        ),
                    ),
                ),
            ),
        ),
    )
)
WRITTEN = encode_message(
    WriteTxnMarkersResponse(
        markers=(
            WritableTxnMarkerResult(
                producer_id=ProducerId(7),
                topics=(
                    WritableTxnMarkerTopicResult(
                        name=TopicName("journal"),
                        partitions=(
                            WritableTxnMarkerPartitionResult(
                                partition_index=i32(0), error_code=ErrorCode.none
                            ),
                        ),
                    ),
                ),
            ),
        )
    )
)


class OtherBroker:
    """Responds to verifications at once, and to markers after `marker_delay_s`."""

    def __init__(self, marker_delay_s: float) -> None:
        self.marker_delay_s = marker_delay_s
        self._queues: dict[ServerSide, asyncio.Queue[Asked]] = {}
        self._serving: list[asyncio.Task[None]] = []

    async def start(self, bench: Bench) -> None:
        server = NodeServer(bench.world, OTHER_ADDRESS.host)
        server.answer = self._queue
        await server.listen(OTHER_ADDRESS.port)
        register_other(bench)

    def _queue(self, asked: Asked) -> None:
        if asked.connection not in self._queues:
            self._queues[asked.connection] = asyncio.Queue()
            self._serving.append(asyncio.create_task(self._serve(self._queues[asked.connection])))
        self._queues[asked.connection].put_nowait(asked)

    async def _serve(self, queue: "asyncio.Queue[Asked]") -> None:
        while True:
            asked = await queue.get()
            if asked.api_key == ApiKey.WRITE_TXN_MARKERS:
                await asyncio.sleep(self.marker_delay_s)
                asked.respond(WRITTEN)
            else:
                assert asked.api_key == ApiKey.ADD_PARTITIONS_TO_TXN
                asked.respond(VERIFIED)


def write(bench: Bench) -> "Promise[MarkerResults | KafkaError]":
    return RemoteMarkers(bench.services).write(OTHER, TransactionMarker(7, 1, True, 0), [PARTITION])


def verify(bench: Bench) -> "Promise[VerificationCodes | KafkaError]":
    asked = PartitionsToVerify("tx", 7, 1, (PARTITION,), verify_only=True)
    return RemoteVerification(bench.services).verify(OTHER, asked)


@on_broker(controlled_shutdown_enable="false")
async def test_a_marker_that_waits_for_its_replicas_does_not_delay_a_verification(bench: Bench) -> None:
    await OtherBroker(marker_delay_s=25).start(bench)
    written = write(bench)
    await asyncio.sleep(0.1)
    verified = verify(bench)
    await asyncio.sleep(0.1)
    assert verified.done
    assert verified.value == {PARTITION: ErrorCode.none}
    assert not written.done


@on_broker(controlled_shutdown_enable="false", request_timeout_ms="3000")
async def test_a_marker_gets_the_response_of_a_broker_that_waits_for_its_request_timeout(
    bench: Bench,
) -> None:
    await OtherBroker(marker_delay_s=3.1).start(bench)
    written = write(bench)
    await until(lambda: written.done)
    assert written.value == {PARTITION: ErrorCode.none}
