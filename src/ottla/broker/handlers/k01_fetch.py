"""Fetch, versions 4 to 18.

v4 isolation level; v7 sessions (KIP-227); v9 leader epochs (KIP-320); v11 racks (KIP-392); v12 diverging epochs
(KIP-595); v13 topic ids (KIP-516); v16 the new leader's address (KIP-951). Records are sent as regions of log files.
"""

import contextlib

from ottla.broker.connection import ResponseParts
from ottla.broker.delayed_fetch import DelayedFetch, DelayedSessionFetch
from ottla.broker.dispatch import RequestContext
from ottla.broker.fetch_reader import (
    LARGE_FETCH_PARTITIONS,
    LARGE_FOLLOWER_FETCH_PARTITIONS,
    NOTHING_READ,
    FetchRead,
    FetchReader,
)
from ottla.broker.leader_hints import node_endpoints
from ottla.broker.long_requests import REQUEST_BYTES_ON_LOOP
from ottla.broker.promise import Promise
from ottla.broker.services import BrokerServices
from ottla.core.fetch_ready_set import ReadySet
from ottla.core.fetch_session import FetchContext, FetchSession, SessionlessContext, prepare_full_fetch
from ottla.model.errors import KafkaError
from ottla.model.region import FileRegion
from ottla.protocol.fetch_codec import (
    RACK_FROM,
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
            now_ms=services.env.clock.monotonic_ms(),
            random_id=services.env.random.getrandbits(31),
            prepared=prepared,
        )
    except KafkaError as error:
        return _encode(context, FetchResponse(0, int(error.code), 0, []))
    return _Fetch(services, context, request, session).start()


class _Fetch:
    """A request with its session: reads, waits if there is too little, and responds."""

    __slots__ = (
        "_context",
        "_deadline_ms",
        "_is_large",
        "_large",
        "_reader",
        "_request",
        "_services",
        "_session",
    )

    def __init__(
        self, services: BrokerServices, context: RequestContext, request: FetchRequest, session: FetchContext
    ) -> None:
        self._services = services
        self._context = context
        self._request = request
        self._session = session
        self._deadline_ms: int | None = None  # set when it waits for the first time
        is_follower = request.replica_id >= 0
        self._large = LARGE_FOLLOWER_FETCH_PARTITIONS if is_follower else LARGE_FETCH_PARTITIONS
        self._is_large = session.count > self._large
        if self._is_large and session.ready_set is None:
            session.watch().on_ready = services.delayed_operations.notify
        max_bytes = min(request.max_bytes, services.config.get_int("fetch.max.bytes"))
        self._reader = FetchReader(
            services.partitions,
            request,
            session,
            max_bytes,
            services.env.clock,
            services.metadata,
            services.throttles.leader,
            may_read_followers=context.header.api_version >= RACK_FROM,
            client_rack=request.rack_id if services.partitions.selects_by_rack else "",
        )

    def start(self) -> ResponseParts | Promise[ResponseParts]:
        if self._is_large:
            return self._start_in_slices()
        read = self._reader.read(may_block=False)
        if read.cold_lookups:
            warmed = _warm_lookups(self._services, read)
            return warmed.then(lambda _: self._respond_or_wait(self._reader.read()))
        return self._respond_or_wait(read)

    def _start_in_slices(self) -> Promise[ResponseParts]:
        """A fetch that is lost, by a disconnect or a fault, must not leave watches on the partitions."""
        response = self._read_in_slices()
        promise: Promise[ResponseParts] = Promise()

        def abandoned() -> bool:
            self._session.abandon()
            return response.cancel()

        def failed(error: Exception) -> None:
            self._session.abandon()
            promise.fail(error)

        promise.on_abandon = abandoned
        response.subscribe(promise.complete, failed)
        return promise

    def _read_in_slices(self) -> Promise[ResponseParts]:
        services, reader, ready_set = self._services, self._reader, self._session.ready_set
        assert ready_set is not None
        changes = ready_set.changes

        def read_again(read: FetchRead) -> FetchRead | Promise[FetchRead]:
            if not read.cold_lookups:
                return read
            warmed = _warm_lookups(services, read)
            return warmed.then(lambda _: reader.read_in_slices(services.scheduler))

        first = reader.read_in_slices(services.scheduler, may_block=False)
        return first.then(read_again).then(
            lambda read: self._respond_or_wait(read, has_changed=ready_set.changes != changes)
        )

    def _is_enough(self, read: FetchRead) -> bool:
        return read.size >= self._request.min_bytes or read.is_urgent

    def _respond_or_wait(
        self, read: FetchRead, *, has_changed: bool = False
    ) -> ResponseParts | Promise[ResponseParts]:
        """`has_changed` says that a partition may have changed since it was read."""
        request, session = self._request, self._session
        if self._is_enough(read) or request.max_wait_ms <= 0 or session.is_empty or session.is_over:
            return self._respond(read)
        self._reader.stop_counting()
        if session.ready_set is not None:
            session.wait(read.results)
            return self._wait(session.ready_set, has_changed=has_changed)
        operations = self._services.delayed_operations
        promise: Promise[ResponseParts] = Promise(lambda: operations.cancel(operation))
        operation = DelayedFetch(
            promise, self._reader, request, lambda read: promise.resolve(self._respond(read))
        )
        operations.watch(operation, operation.keys, request.max_wait_ms)
        return promise

    def _wait(self, ready_set: ReadySet, *, has_changed: bool) -> Promise[ResponseParts]:
        operations, now_ms = self._services.delayed_operations, self._services.env.clock.monotonic_ms()
        if self._deadline_ms is None:
            self._deadline_ms = now_ms + self._request.max_wait_ms
        promise: Promise[ResponseParts] = Promise(lambda: operations.cancel(operation))
        operation = DelayedSessionFetch(
            promise, lambda: self._try_again(promise, ready_set), lambda: self._respond_late(promise)
        )
        operations.watch(operation, (ready_set,), max(0, self._deadline_ms - now_ms))
        if has_changed:
            operations.notify(ready_set)
        return promise

    def _try_again(self, promise: Promise[ResponseParts], ready_set: ReadySet) -> bool:
        """A partition has become ready, or the session has ended. Returns whether the wait is over."""
        if self._session.is_over:
            promise.resolve(self._respond(NOTHING_READ))
            return True
        if len(ready_set.ready) > self._large:
            promise.resolve(self._read_in_slices())
            return True
        read = self._reader.read_ready()
        if not self._is_enough(read):
            self._session.wait(read.results)
            return False
        if self._session.is_incremental:
            promise.resolve(self._respond(read))
        else:
            self._respond_late(promise)
        return True

    def _respond_late(self, promise: Promise[ResponseParts]) -> None:
        """Responds with all that there is now."""
        if self._session.is_over:
            promise.resolve(self._respond(NOTHING_READ))
        elif self._session.count > self._large:
            promise.resolve(self._reader.read_in_slices(self._services.scheduler).then(self._respond))
        else:
            promise.resolve(self._respond(self._reader.read()))

    def _respond(self, read: FetchRead) -> ResponseParts | Promise[ResponseParts]:
        services, context = self._services, self._context
        try:
            session_response = self._session.respond(read.results, services.env.clock.monotonic_ms())
        except KafkaError as error:
            return _encode(context, FetchResponse(0, int(error.code), 0, []))
        if self._request.replica_id < 0:
            for counters, size in read.taken:
                counters.bytes_out += size
        else:
            for counters, size in read.taken:
                counters.replication_bytes_out += size
        if read.throttled_bytes:
            services.throttles.leader.record(read.throttled_bytes, services.env.clock.monotonic_ms())
        response = FetchResponse(0, 0, session_response.session_id, session_response.topics)
        if read.leaders:
            response = response._replace(node_endpoints=node_endpoints(services, context, read.leaders))
        cold = [
            region for region in read.maybe_cold if not region.file.is_cached(region.position, region.length)
        ]
        services.partitions.counters.cold_reads += len(cold)
        if len(read.results) > LARGE_FETCH_PARTITIONS:
            encoded = services.message_thread.submit(lambda: _encode(context, response))
            return encoded.then(lambda parts: _after_warming(services, parts, cold) if cold else parts)
        parts = _encode(context, response)
        return _after_warming(services, parts, cold) if cold else parts


def _warm_lookups(services: BrokerServices, read: FetchRead) -> Promise[None]:
    """A thread reads what the lookups need. An error is left to the second read, which has the same error."""

    def warm() -> None:
        for lookup in read.cold_lookups:
            with contextlib.suppress(OSError, KafkaError):
                lookup.warm()

    return services.tasks.run(services.env.threads.run(warm))


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
