"""Calls the handler of a request, and encodes the response.

Handlers are in `broker/handlers`, one module per API key. The first request of an API loads its module in a thread: the
import, with kio's schemas and a coordinator, takes up to 100 ms, in which the event loop would serve no other client.

A module has one of two functions:
- `handle(services, context, request)`, a function or a coroutine, returns the response or a Promise of it. Request and
  response are kio's messages in their newest version. A module whose versions differ in shape also has
  `lift(request, as_sent, version)` and `lower(response, version)`.
- `handle_body(services, context, body)` decodes and encodes by itself. It is for APIs with a codec of their own.

Decoding or encoding a long message takes seconds. A thread does it for one message at a time, which bounds the memory.

A node has one dispatcher for its broker listeners and one for its controller listeners: they serve different APIs.
Requests that change metadata are forwarded if another node is the active controller (`ottla.broker.forwarding`).
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

from ottla.broker.connection import ClientConnection, ResponseParts
from ottla.broker.forwarding import FORWARDED_APIS, forwarding_handler
from ottla.broker.long_requests import REQUEST_BYTES_ON_LOOP
from ottla.broker.promise import Promise
from ottla.broker.services import NodeServices
from ottla.model.tuples import new_tuple
from ottla.protocol.api_keys import APIS, ApiKey, ListenerKind, apis_of
from ottla.protocol.errors import MalformedRequest
from ottla.protocol.framing import Frame, RequestHeader, read_request_header, response_prefix

T = TypeVar("T")

_FIRST_FLEXIBLE: dict[int, int] = {key.value: spec.first_flexible for key, spec in APIS.items()}
# The same API key, but another task: on a controller listener, Fetch reads the metadata log.
_CONTROLLER_HANDLERS = {ApiKey.FETCH: "k01_fetch_metadata"}

# The coordinator is imported with the handlers that use it.
_APIS_OF_COORDINATORS = {
    "groups": {
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH,
        ApiKey.FIND_COORDINATOR,
        ApiKey.JOIN_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.LEAVE_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.LIST_GROUPS,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.DELETE_GROUPS,
        ApiKey.OFFSET_DELETE,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.CONSUMER_GROUP_DESCRIBE,
    },
    "transactions": {
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.END_TXN,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.LIST_TRANSACTIONS,
    },
}

# Up to this size, encoding on the event loop takes a few milliseconds. Beyond it a thread does it.
RESPONSE_ELEMENTS_ON_LOOP = 1000


class RequestContext(NamedTuple):
    header: RequestHeader
    connection: ClientConnection
    listener_kind: ListenerKind = ListenerKind.BROKER

    @property
    def version(self) -> int:
        return self.header.api_version

    @property
    def client_id(self) -> str:
        return self.header.client_id or ""

    def respond(self, body: bytes) -> list[bytes]:
        """The parts of a response with this body."""
        flexible = self.header.api_version >= _FIRST_FLEXIBLE[self.header.api_key]
        return [response_prefix(self.header.correlation_id, len(body), flexible) + body]


# Its first argument is the services that the handler needs: BrokerServices, or NodeServices on any node.
BodyHandler = Callable[[Any, RequestContext, memoryview], "ResponseParts | Promise[ResponseParts]"]


def _reject_api_versions(services: NodeServices, context: RequestContext, body: memoryview) -> ResponseParts:
    # KIP-511: the response to an unknown version is v0 with UNSUPPORTED_VERSION, and the client chooses again.
    from ottla.broker.handlers.k18_api_versions import unsupported_version
    from ottla.protocol.messages import encode_response

    response = encode_response(ApiKey.API_VERSIONS, 0, unsupported_version(services, context))
    return [response_prefix(context.header.correlation_id, len(response), False) + response]


class Dispatcher:
    """The handlers of a controller listener need no more of `services` than NodeServices."""

    def __init__(self, services: NodeServices, kind: ListenerKind = ListenerKind.BROKER) -> None:
        self._services = services
        self._kind = kind
        self._specs = {key.value: (key, spec) for key, spec in apis_of(kind).items()}
        self._handlers: dict[tuple[int, int], BodyHandler] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    def __call__(
        self, connection: ClientConnection, frame: Frame
    ) -> "ResponseParts | Promise[ResponseParts]":
        header = read_request_header(frame, _FIRST_FLEXIBLE)
        handler = self._handlers.get((header.api_key, header.api_version))
        context = new_tuple(RequestContext, (header, connection, self._kind))
        body = memoryview(frame)[header.body_position :]
        if handler is None:
            return self._load_and_handle(context, body)
        return handler(self._services, context, body)

    def _load_and_handle(
        self, context: RequestContext, body: memoryview
    ) -> "ResponseParts | Promise[ResponseParts]":
        """Serves the first request of an API and version."""
        header = context.header
        known = self._specs.get(header.api_key)
        if known is None:
            raise MalformedRequest(f"API key {header.api_key} is unknown or not supported")
        key, spec = known
        unstable = self._services.config.get_bool("unstable.api.versions.enable")
        max_version = spec.latest_enabled(unstable=unstable)
        if not spec.min_version <= header.api_version <= max_version:
            if key is ApiKey.API_VERSIONS:
                return _reject_api_versions(self._services, context, body)
            raise MalformedRequest(
                f"{key.name} v{header.api_version} is not supported: this broker speaks "
                f"v{spec.min_version} to v{max_version}"
            )

        def handle(handler: BodyHandler) -> "ResponseParts | Promise[ResponseParts]":
            self._handlers[(key.value, header.api_version)] = handler
            return handler(self._services, context, body)

        loaded = self._services.env.threads.run(lambda: self._load(key, header.api_version))
        return self._services.tasks.run(loaded).then(handle)

    def _load(self, key: ApiKey, version: int) -> BodyHandler:
        """Runs in a thread."""
        for coordinator, keys in _APIS_OF_COORDINATORS.items():
            if key in keys:
                import_module(f"ottla.broker.coordinators.{coordinator}")
        name = f"k{key.value:02d}_{key.name.lower()}"
        if self._kind is ListenerKind.CONTROLLER:
            name = _CONTROLLER_HANDLERS.get(key, name)
        module = import_module(f"ottla.broker.handlers.{name}")
        handler: BodyHandler | None = getattr(module, "handle_body", None)
        if handler is None:
            handler = self._message_handler(key, version, module)
        if self._kind is ListenerKind.BROKER and key in FORWARDED_APIS:
            return forwarding_handler(handler, getattr(module, "is_for_this_node", None))
        return handler

    def _message_handler(self, key: ApiKey, version: int, module: Any) -> BodyHandler:
        from ottla.protocol.messages import (  # slow to import, and not needed by Produce and Fetch
            decode_request,
            encode_response,
            has_many_elements,
            load_schemas,
        )

        load_schemas(key, version)
        handle, lift, lower = module.handle, getattr(module, "lift", None), getattr(module, "lower", None)
        # KAFKA-5859: the response header of ApiVersions is always v0, as the client does not know our versions yet.
        always_v0 = key is ApiKey.API_VERSIONS

        def decode(context: RequestContext, body: memoryview) -> Any:
            as_sent, request = decode_request(key, context.version, body)
            return request if lift is None else lift(request, as_sent, context.version)

        def encode(context: RequestContext, response: Any) -> ResponseParts:
            version = context.version
            if lower is not None:
                response = lower(response, version)
            body = encode_response(key, version, response)
            flexible = not always_v0 and version >= _FIRST_FLEXIBLE[key.value]
            return [response_prefix(context.header.correlation_id, len(body), flexible) + body]

        def respond(context: RequestContext, response: Any) -> "ResponseParts | Promise[ResponseParts]":
            if has_many_elements(response, RESPONSE_ELEMENTS_ON_LOOP):
                return self._services.message_thread.submit(lambda: encode(context, response))
            return encode(context, response)

        def serve(context: RequestContext, request: Any) -> "ResponseParts | Promise[ResponseParts]":
            result = handle(self._services, context, request)
            if inspect.isawaitable(result):
                result = self._await(context, result)
            if isinstance(result, Promise):
                return result.then(lambda response: respond(context, response))
            return respond(context, result)

        def handle_body(
            services: NodeServices, context: RequestContext, body: memoryview
        ) -> "ResponseParts | Promise[ResponseParts]":
            if len(body) > REQUEST_BYTES_ON_LOOP:
                decoded = services.message_thread.submit(lambda: decode(context, body))
                return decoded.then(lambda request: serve(context, request))
            return serve(context, decode(context, body))

        return handle_body

    def _await(self, context: RequestContext, result: "Awaitable[T | Promise[T]]") -> Promise[T]:
        promise: Promise[T] = Promise()

        async def run() -> T | Promise[T]:
            return await result

        def finished(task: "asyncio.Task[T | Promise[T]]") -> None:
            self._tasks.discard(task)
            if task.cancelled():
                context.connection.close()
            elif isinstance(error := task.exception(), Exception):
                promise.fail(error)
            else:
                promise.resolve(task.result())

        task = asyncio.get_running_loop().create_task(run())
        self._tasks.add(task)
        task.add_done_callback(finished)
        return promise

    async def close(self) -> None:
        """Cancels the requests that are being served. Their connections close."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
