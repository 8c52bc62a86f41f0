"""From a frame to the handler of its API, and from the handler's message to the parts of a response.

Handlers live in `broker/handlers`, one module per API key, imported when the first request of their kind comes.
A module has either
- `handle(broker, context, request)`, plain or async, that answers with the response or a Pending of it: takes and
  returns the newest version of kio's messages; where versions differ in shape also `lift(request, as_sent, version)`
  and `lower(response, version)`; or
- `handle_body(broker, context, body)`: for Produce and Fetch, which have codecs of their own.

A long message takes seconds to read or write. A worker does that, one message at a time, so that the memory which they
take is that of one.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ottla.broker.connection import Answer, ClientConnection
from ottla.broker.pending import Pending
from ottla.model.tuples import new_tuple
from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.errors import MalformedRequest
from ottla.protocol.framing import Frame, RequestHeader, read_request_header, response_prefix

if TYPE_CHECKING:
    from ottla.broker.node import Broker

T = TypeVar("T")

_FIRST_FLEXIBLE: dict[int, int] = {key.value: spec.first_flexible for key, spec in APIS.items()}
_SPECS = {key.value: (key, spec) for key, spec in APIS.items()}

# Read or written in a few milliseconds. What is longer goes to a worker.
REQUEST_BYTES_ON_LOOP = 32 * 1024
RESPONSE_ELEMENTS_ON_LOOP = 1000


class RequestContext(NamedTuple):
    header: RequestHeader
    connection: ClientConnection

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


BodyHandler = Callable[["Broker", RequestContext, memoryview], "Answer | Pending[Answer]"]


def _newer_api_versions(broker: "Broker", context: RequestContext, body: memoryview) -> Answer:
    # KIP-511: a version that we do not know is answered with v0 and UNSUPPORTED_VERSION: the client chooses again.
    from ottla.broker.handlers.k18_api_versions import unsupported_version
    from ottla.protocol.messages import encode_response

    response = encode_response(ApiKey.API_VERSIONS, 0, unsupported_version(broker))
    return [response_prefix(context.header.correlation_id, len(response), False) + response]


class Dispatcher:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._handlers: dict[tuple[int, int], BodyHandler] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    def __call__(self, connection: ClientConnection, frame: Frame) -> "Answer | Pending[Answer]":
        header = read_request_header(frame, _FIRST_FLEXIBLE)
        handler = self._handlers.get((header.api_key, header.api_version))
        if handler is None:
            handler = self._handler_for(header)
        context = new_tuple(RequestContext, (header, connection))
        return handler(self._broker, context, memoryview(frame)[header.body_position :])

    def _handler_for(self, header: RequestHeader) -> BodyHandler:
        """The handler of an API and version that was not asked for before."""
        known = _SPECS.get(header.api_key)
        if known is None:
            raise MalformedRequest(f"API key {header.api_key} is not known or not served here")
        key, spec = known
        unstable = self._broker.config.get_bool("unstable.api.versions.enable")
        max_version = spec.latest_enabled(unstable=unstable)
        if not spec.min_version <= header.api_version <= max_version:
            if key is ApiKey.API_VERSIONS:
                return _newer_api_versions
            raise MalformedRequest(
                f"{key.name} v{header.api_version} is not supported: this broker speaks "
                f"v{spec.min_version} to v{max_version}"
            )
        module = import_module(f"ottla.broker.handlers.k{key.value:02d}_{key.name.lower()}")
        handler: BodyHandler = (
            module.handle_body if hasattr(module, "handle_body") else self._message_handler(key, module)
        )
        self._handlers[(key.value, header.api_version)] = handler
        return handler

    def _message_handler(self, key: ApiKey, module: Any) -> BodyHandler:
        from ottla.protocol.messages import (  # not for Produce and Fetch, nor the start
            decode_request,
            encode_response,
            has_many_elements,
        )

        handle, lift, lower = module.handle, getattr(module, "lift", None), getattr(module, "lower", None)
        # KAFKA-5859: the response header of ApiVersions is always v0: the client cannot know yet what we speak.
        always_v0 = key is ApiKey.API_VERSIONS

        def decode(context: RequestContext, body: memoryview) -> Any:
            as_sent, request = decode_request(key, context.version, body)
            return request if lift is None else lift(request, as_sent, context.version)

        def encode(context: RequestContext, response: Any) -> Answer:
            version = context.version
            if lower is not None:
                response = lower(response, version)
            body = encode_response(key, version, response)
            flexible = not always_v0 and version >= _FIRST_FLEXIBLE[key.value]
            return [response_prefix(context.header.correlation_id, len(body), flexible) + body]

        def respond(context: RequestContext, response: Any) -> "Answer | Pending[Answer]":
            if has_many_elements(response, RESPONSE_ELEMENTS_ON_LOOP):
                return self._broker.in_worker(lambda: encode(context, response))
            return encode(context, response)

        def serve(context: RequestContext, request: Any) -> "Answer | Pending[Answer]":
            result = handle(self._broker, context, request)
            if inspect.isawaitable(result):
                result = self._await(context, result)
            if isinstance(result, Pending):
                return result.then(lambda response: respond(context, response))
            return respond(context, result)

        def handle_body(
            broker: "Broker", context: RequestContext, body: memoryview
        ) -> "Answer | Pending[Answer]":
            if len(body) > REQUEST_BYTES_ON_LOOP:
                decoded = broker.in_worker(lambda: decode(context, body))
                return decoded.then(lambda request: serve(context, request))
            return serve(context, decode(context, body))

        return handle_body

    def _await(self, context: RequestContext, result: "Awaitable[T | Pending[T]]") -> Pending[T]:
        pending: Pending[T] = Pending()

        async def run() -> T | Pending[T]:
            return await result

        def finished(task: "asyncio.Task[T | Pending[T]]") -> None:
            self._tasks.discard(task)
            if task.cancelled():
                context.connection.close()
            elif isinstance(error := task.exception(), Exception):
                pending.fail(error)
            else:
                pending.resolve(task.result())

        task = asyncio.get_running_loop().create_task(run())
        self._tasks.add(task)
        task.add_done_callback(finished)
        return pending

    async def close(self) -> None:
        """Requests at work are given up: their connections close."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
