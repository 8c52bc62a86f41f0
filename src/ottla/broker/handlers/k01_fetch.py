"""Fetch, versions 4 to 18.

v4 isolation level; v7 sessions (KIP-227); v9 leader epochs (KIP-320); v11 racks (KIP-392); v12 diverging epochs
(KIP-595); v13 topic ids (KIP-516); v16 the new leader's address (KIP-951). Records are sent as regions of log files.
"""

import contextlib

from ottla.broker.connection import ResponseParts
from ottla.broker.delayed_fetch import DelayedFetch, LargeDelayedFetch
from ottla.broker.dispatch import REQUEST_BYTES_ON_LOOP, RequestContext
from ottla.broker.fetch_reader import LARGE_FETCH_PARTITIONS, FetchRead, FetchReader
from ottla.broker.promise import Promise
from ottla.broker.services import BrokerServices
from ottla.core.fetch_session import FetchContext, FetchSession, SessionlessContext, prepare_full_fetch
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

_FLEXIBLE_FROM = 12
_WARM_STEP_BYTES = 1 << 20

Prepared = FetchSession | SessionlessContext | None


def handle_body(
    services: BrokerServices, context: RequestContext, body: memoryview
) -> ResponseParts | Promise[ResponseParts]:
    version = context.header.api_version
    if len(body) > REQUEST_BYTES_ON_LOOP:
        decoded = services.message_thread.submit(lambda: _decode_and_prepare(body, version))
        return decoded.then(lambda read: _serve(services, context, *read))
    return _serve(services, context, decode_fetch_request(body, version))


def _decode_and_prepare(body: memoryview, version: int) -> tuple[FetchRequest, Prepared]:
    request = decode_fetch_request(body, version)
    return request, prepare_full_fetch(
        request.session_epoch,
        request.topics,
        uses_topic_ids=version >= TOPIC_IDS_FROM,
        is_follower=request.replica_id >= 0,
    )


def _serve(
    services: BrokerServices, context: RequestContext, request: FetchRequest, prepared: Prepared = None
) -> ResponseParts | Promise[ResponseParts]:
    try:
        session = services.fetch_sessions.get().resolve(
            session_id=request.session_id,
            session_epoch=request.session_epoch,
            topics=request.topics,
            forgotten=request.forgotten,
            uses_topic_ids=context.header.api_version >= TOPIC_IDS_FROM,
            is_follower=request.replica_id >= 0,
            now_ms=services.env.clock.now_ms(),
            random_id=services.env.random.getrandbits(31),
            prepared=prepared,
        )
    except KafkaError as error:
        return _encode(context, FetchResponse(0, int(error.code), 0, []))
    return _fetch(services, context, request, session)


def _fetch(
    services: BrokerServices, context: RequestContext, request: FetchRequest, session: FetchContext
) -> ResponseParts | Promise[ResponseParts]:
    max_bytes = min(request.max_bytes, services.config.get_int("fetch.max.bytes"))
    reader = FetchReader(services.partitions, request, session, max_bytes, services.env.clock)
    if reader.is_large:
        return _fetch_in_slices(services, context, request, session, reader)
    read = reader.read(may_block=False)
    if read.cold_lookups:
        warmed = _warm_lookups(services, read)
        return warmed.then(
            lambda _: _respond_or_wait(services, context, request, session, reader, reader.read())
        )
    return _respond_or_wait(services, context, request, session, reader, read)


def _respond_or_wait(
    services: BrokerServices,
    context: RequestContext,
    request: FetchRequest,
    session: FetchContext,
    reader: FetchReader,
    read: FetchRead,
) -> ResponseParts | Promise[ResponseParts]:
    if read.size >= request.min_bytes or read.is_urgent or request.max_wait_ms <= 0 or not read.results:
        return _respond(services, context, session, read)
    promise: Promise[ResponseParts] = Promise(lambda: services.delayed_operations.cancel(operation))

    def finish(read: FetchRead) -> None:
        promise.resolve(_respond(services, context, session, read))

    operation = DelayedFetch(promise, reader, request, finish)
    services.delayed_operations.watch(operation, operation.keys, request.max_wait_ms)
    return promise


def _fetch_in_slices(
    services: BrokerServices,
    context: RequestContext,
    request: FetchRequest,
    session: FetchContext,
    reader: FetchReader,
) -> Promise[ResponseParts]:
    """Reads very many partitions: at once and, if that is too little, once more when `max_wait_ms` is over."""

    def respond(read: FetchRead) -> ResponseParts | Promise[ResponseParts]:
        return _respond(services, context, session, read)

    def respond_or_wait(read: FetchRead) -> ResponseParts | Promise[ResponseParts]:
        if read.size >= request.min_bytes or read.is_urgent or request.max_wait_ms <= 0:
            return respond(read)
        promise: Promise[ResponseParts] = Promise(lambda: services.delayed_operations.cancel(operation))
        operation = LargeDelayedFetch(
            promise, lambda: promise.resolve(reader.read_in_slices(services.scheduler).then(respond))
        )
        services.delayed_operations.watch(operation, (), request.max_wait_ms)
        return promise

    def read_again(read: FetchRead) -> FetchRead | Promise[FetchRead]:
        if not read.cold_lookups:
            return read
        warmed = _warm_lookups(services, read)
        return warmed.then(lambda _: reader.read_in_slices(services.scheduler))

    first = reader.read_in_slices(services.scheduler, may_block=False)
    return first.then(read_again).then(respond_or_wait)


def _warm_lookups(services: BrokerServices, read: FetchRead) -> Promise[None]:
    """A thread reads what the lookups need. An error is left to the second read, which has the same error."""

    def warm() -> None:
        for lookup in read.cold_lookups:
            with contextlib.suppress(OSError, KafkaError):
                lookup.warm()

    return services.tasks.run(services.env.threads.run(warm))


def _respond(
    services: BrokerServices, context: RequestContext, session: FetchContext, read: FetchRead
) -> ResponseParts | Promise[ResponseParts]:
    try:
        session_response = session.respond(read.results, services.env.clock.now_ms())
    except KafkaError as error:
        return _encode(context, FetchResponse(0, int(error.code), 0, []))
    response = FetchResponse(0, 0, session_response.session_id, session_response.topics)
    cold = [region for region in read.maybe_cold if not region.file.is_cached(region.position, region.length)]
    if len(read.results) > LARGE_FETCH_PARTITIONS:
        encoded = services.message_thread.submit(lambda: _encode(context, response))
        return encoded.then(lambda parts: _after_warming(services, parts, cold) if cold else parts)
    parts = _encode(context, response)
    return _after_warming(services, parts, cold) if cold else parts


def _encode(
    context: RequestContext, response: FetchResponse
) -> list[bytes | bytearray | memoryview | FileRegion]:
    version = context.header.api_version
    parts = encode_fetch_response(response, version)
    prefix = response_prefix(context.header.correlation_id, encoded_size(parts), version >= _FLEXIBLE_FROM)
    return [prefix, *parts]


def _after_warming(
    services: BrokerServices, parts: list[bytes | bytearray | memoryview | FileRegion], cold: list[FileRegion]
) -> Promise[ResponseParts]:
    """A thread reads bytes that are not in the page cache: sendfile of such bytes would block the event loop.

    If they cannot be read the connection closes, as the encoded response already contains their length.
    """

    def warm() -> None:
        for region in cold:
            for start in range(region.position, region.position + region.length, _WARM_STEP_BYTES):
                region.file.read_at(start, min(_WARM_STEP_BYTES, region.position + region.length - start))

    async def run() -> ResponseParts:
        await services.env.threads.run(warm)
        return parts

    return services.tasks.run(run())
