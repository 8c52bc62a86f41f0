"""Fetch, versions 4 to 18.

v4 isolation level; v7 sessions (KIP-227); v9 leader epochs (KIP-320); v11 racks (KIP-392); v12 divergence (KIP-595);
v13 topic ids (KIP-516); v16 the new leader's address (KIP-951). Records go out as regions of the log's files.
"""

from typing import TYPE_CHECKING

from ottla.broker.connection import Answer
from ottla.broker.dispatch import RequestContext
from ottla.broker.fetching import DelayedFetch, FetchRead, FetchReader
from ottla.broker.pending import Pending
from ottla.core.fetch_session import FetchContext
from ottla.model.errors import KafkaError
from ottla.model.region import FileRegion
from ottla.protocol.fetch_codec import (
    TOPIC_IDS_FROM,
    FetchRequest,
    FetchResponse,
    decode_fetch_request,
    encode_fetch_response,
    encoded_size,
)
from ottla.protocol.framing import response_prefix

if TYPE_CHECKING:
    from ottla.broker.node import Broker

_FLEXIBLE_FROM = 12
_WARM_STEP_BYTES = 1 << 20


def handle_body(broker: "Broker", context: RequestContext, body: memoryview) -> Answer | Pending[Answer]:
    request = decode_fetch_request(body, context.header.api_version)
    try:
        session = broker.fetch_sessions.resolve(
            session_id=request.session_id,
            session_epoch=request.session_epoch,
            topics=request.topics,
            forgotten=request.forgotten,
            uses_topic_ids=context.header.api_version >= TOPIC_IDS_FROM,
            is_follower=request.replica_id >= 0,
            now_ms=broker.env.clock.now_ms(),
            random_id=broker.env.random.getrandbits(31),
        )
    except KafkaError as error:
        return _encode(context, FetchResponse(0, int(error.code), 0, []))
    return _fetch(broker, context, request, session)


def _fetch(
    broker: "Broker", context: RequestContext, request: FetchRequest, session: FetchContext
) -> Answer | Pending[Answer]:
    max_bytes = min(request.max_bytes, broker.fetch_max_bytes)
    reader = FetchReader(broker.partitions, request, session, max_bytes, broker.env.clock)
    read = reader.read()
    if read.size >= request.min_bytes or read.is_urgent or request.max_wait_ms <= 0 or not read.results:
        return _respond(broker, context, session, read)
    pending: Pending[Answer] = Pending(lambda: broker.waiting_room.cancel(operation))

    def finished(read: FetchRead) -> None:
        pending.resolve(_respond(broker, context, session, read))

    operation = DelayedFetch(pending, reader, request, finished)
    broker.waiting_room.wait(operation, operation.keys, request.max_wait_ms)
    return pending


def _respond(
    broker: "Broker", context: RequestContext, session: FetchContext, read: FetchRead
) -> Answer | Pending[Answer]:
    try:
        answer = session.respond(read.results, broker.env.clock.now_ms())
    except KafkaError as error:
        return _encode(context, FetchResponse(0, int(error.code), 0, []))
    parts = _encode(context, FetchResponse(0, 0, answer.session_id, answer.topics))
    cold = [region for region in read.doubtful if not region.file.is_cached(region.position, region.length)]
    return _after_warming(broker, parts, cold) if cold else parts


def _encode(
    context: RequestContext, response: FetchResponse
) -> list[bytes | bytearray | memoryview | FileRegion]:
    version = context.header.api_version
    parts = encode_fetch_response(response, version)
    prefix = response_prefix(context.header.correlation_id, encoded_size(parts), version >= _FLEXIBLE_FROM)
    return [prefix, *parts]


def _after_warming(
    broker: "Broker", parts: list[bytes | bytearray | memoryview | FileRegion], cold: list[FileRegion]
) -> Pending[Answer]:
    """sendfile of bytes that are not in the page cache would stop the event loop: a worker reads them first.

    Where they cannot be read the connection closes: the length is promised by then.
    """

    def warm() -> None:
        for region in cold:
            for start in range(region.position, region.position + region.length, _WARM_STEP_BYTES):
                region.file.read_at(start, min(_WARM_STEP_BYTES, region.position + region.length - start))

    async def run() -> Answer:
        await broker.env.workers.run(warm)
        return parts

    return broker.answer_later(run())
