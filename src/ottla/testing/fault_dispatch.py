"""Applies faults to requests: it stands between the connections of a broker and its dispatcher."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from io import BytesIO
from typing import Any

from kio.index import load_response_schema
from kio.serial import entity_writer

from ottla.broker.connection import ClientConnection, Dispatch, ResponseParts
from ottla.broker.node import Broker
from ottla.broker.promise import Promise
from ottla.model.errors import ErrorCode
from ottla.model.region import FileRegion
from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.decoder import entity_reader
from ottla.protocol.errors import MalformedRequest
from ottla.protocol.framing import Frame, RequestHeader, read_request_header, response_prefix
from ottla.protocol.messages import decode_request, encode_response
from ottla.testing.error_response import error_response
from ottla.testing.faults import Action, ControlledRequest, Fault
from ottla.testing.names import find_error
from ottla.testing.request_split import merge_responses, split_request

_FIRST_FLEXIBLE = {key.value: spec.first_flexible for key, spec in APIS.items()}


class _NotMet:
    """The fault does not concern the request."""


_Result = ResponseParts | Promise[ResponseParts]
_NOT_MET = _NotMet()


class FaultDispatch:
    """A request meets the first fault that concerns it and is not used up."""

    def __init__(self, broker: Broker, faults: Sequence[Fault]) -> None:
        self._broker = broker
        self._serve: Dispatch = broker.server.dispatch
        self._faults = faults

    @property
    def replaced(self) -> Dispatch:
        return self._serve

    def __call__(self, connection: ClientConnection, frame: Frame) -> _Result:
        header = read_request_header(frame, _FIRST_FLEXIBLE)
        self._check_max_version(header)
        for fault in self._faults:
            concerns_api = fault.api == header.api_key and fault.action is not Action.MAX_VERSION
            if concerns_api and not fault.is_used_up:
                result = self._apply(fault, connection, frame, header)
                if not isinstance(result, _NotMet):
                    return result
        return self._serve_versions(connection, frame, header)

    def _apply(
        self, fault: Fault, connection: ClientConnection, frame: Frame, header: RequestHeader
    ) -> _Result | _NotMet:
        if fault.action is Action.FAIL:
            return self._fail(fault, connection, frame, header)
        if fault.action is Action.CONTROL:
            return self._control(fault, connection, frame, header)
        if not fault.take():
            return _NOT_MET
        if fault.action is Action.DELAY:
            return _later(fault.delay_s, lambda: self._serve(connection, frame))
        if fault.action is Action.DROP_RESPONSE:
            # As when the broker dies after the request has taken effect: the client sees the connection close.
            def drop(_: ResponseParts) -> ResponseParts:
                connection.close()
                return None

            return _then(self._serve(connection, frame), drop)
        connection.close()
        return None

    # fail

    def _fail(
        self, fault: Fault, connection: ClientConnection, frame: Frame, header: RequestHeader
    ) -> _Result | _NotMet:
        api = ApiKey(header.api_key)
        request, _ = decode_request(api, header.api_version, memoryview(frame)[header.body_position :])
        if api is ApiKey.METADATA:
            return self._fail_metadata(fault, connection, frame, header)
        if api is ApiKey.FETCH and getattr(request, "session_epoch", -1) > 0:
            # Such a request names only what has changed. Without its session the client names all partitions.
            unknown = error_response(api, header.api_version, request, ErrorCode.none)
            return _encode(header, replace(unknown, error_code=ErrorCode.fetch_session_id_not_found))
        failing, rest = request, None
        if fault.topic is not None:
            failing, rest = split_request(
                api, request, lambda topic, number: fault.covers(self._topic_name(topic), number)
            )
        if failing is None or not fault.take():
            return _NOT_MET
        if api is ApiKey.PRODUCE and request.acks == 0:
            connection.close()  # there is no response, so Kafka closes the connection too
            return None
        failed = error_response(api, header.api_version, failing, fault.error)
        if rest is None:
            return _encode(header, failed)
        served = self._serve(connection, _encode_request(frame, header, rest))
        return _patch(header, served, lambda response: merge_responses(api, response, failed))

    def _fail_metadata(
        self, fault: Fault, connection: ClientConnection, frame: Frame, header: RequestHeader
    ) -> _Result:
        """Clients need the rest of the response, such as the addresses of brokers: only its topics fail."""

        def patch(response: Any) -> Any:
            chosen = [topic for topic in response.topics if fault.covers(topic.name or "", None)]
            if not chosen or not fault.take():
                return response
            return replace(
                response,
                topics=tuple(
                    replace(topic, error_code=fault.error, partitions=()) if topic in chosen else topic
                    for topic in response.topics
                ),
            )

        return _patch(header, self._serve(connection, frame), patch)

    def _topic_name(self, topic: Any) -> str:
        for field in ("name", "topic"):
            if (name := getattr(topic, field, None)) is not None:
                return str(name)
        found = self._broker.services.metadata.image.topics_by_id.get(topic.topic_id)
        return "" if found is None else found.name

    # control

    def _control(
        self, fault: Fault, connection: ClientConnection, frame: Frame, header: RequestHeader
    ) -> _Result | _NotMet:
        api, version = ApiKey(header.api_key), header.api_version
        message, _ = decode_request(api, version, memoryview(frame)[header.body_position :])
        if not fault.take() or fault.function is None:
            return _NOT_MET
        request = ControlledRequest(
            api,
            version,
            header.client_id or "",
            message,
            lambda error: error_response(api, version, message, find_error(error)),
        )

        def respond(response: Any) -> _Result:
            return self._serve(connection, frame) if response is None else _encode(header, response)

        response = fault.function(request)
        return response.then(respond) if isinstance(response, Promise) else respond(response)

    # max_version

    def _check_max_version(self, header: RequestHeader) -> None:
        for fault in self._faults:
            is_older = fault.action is Action.MAX_VERSION and fault.api == header.api_key
            if is_older and header.api_version > fault.version:
                raise MalformedRequest(
                    f"{fault.api.name} v{header.api_version} is not supported: a test has set its last version to "
                    f"v{fault.version}"
                )

    def _serve_versions(self, connection: ClientConnection, frame: Frame, header: RequestHeader) -> _Result:
        served = self._serve(connection, frame)
        limits = {f.api.value: f.version for f in self._faults if f.action is Action.MAX_VERSION}
        if header.api_key != ApiKey.API_VERSIONS or not limits:
            return served

        def patch(response: Any) -> Any:
            offered = (
                replace(api, max_version=min(api.max_version, limits.get(api.api_key, api.max_version)))
                for api in response.api_keys
            )
            return replace(response, api_keys=tuple(offered))

        return _patch(header, served, patch)


def _later(delay_s: float, serve: Callable[[], _Result]) -> Promise[ResponseParts]:
    promise: Promise[ResponseParts] = Promise()

    def run() -> None:
        try:
            result = serve()
        except Exception as error:
            promise.fail(error)
        else:
            promise.resolve(result)

    asyncio.get_running_loop().call_later(delay_s, run)
    return promise


def _then(served: _Result, function: Callable[[ResponseParts], ResponseParts]) -> _Result:
    return served.then(function) if isinstance(served, Promise) else function(served)


def _patch(header: RequestHeader, served: _Result, patch: Callable[[Any], Any]) -> _Result:
    """Changes the broker's own response. None (acks=0) stays None."""

    def run(parts: ResponseParts) -> ResponseParts:
        return None if parts is None else _encode(header, patch(_decode(header, parts)))

    return _then(served, run)


def _has_flexible_header(header: RequestHeader) -> bool:
    # KAFKA-5859: never that of ApiVersions.
    is_flexible = header.api_version >= _FIRST_FLEXIBLE[header.api_key]
    return is_flexible and header.api_key != ApiKey.API_VERSIONS


def _encode(header: RequestHeader, response: Any) -> ResponseParts:
    body = encode_response(ApiKey(header.api_key), header.api_version, response)
    return [response_prefix(header.correlation_id, len(body), _has_flexible_header(header)) + body]


def _decode(header: RequestHeader, parts: Sequence[Any]) -> Any:
    data = b"".join(_bytes(part) for part in parts)
    schema = load_response_schema(ApiKey(header.api_key), header.api_version)
    # After the length and the correlation id, and the empty tagged fields of a flexible header.
    response, _ = entity_reader(schema)(memoryview(data), 9 if _has_flexible_header(header) else 8)
    return response


def _bytes(part: Any) -> bytes:
    if isinstance(part, FileRegion):
        return part.read()
    return bytes(part)


def _encode_request(frame: Frame, header: RequestHeader, request: Any) -> bytes:
    buffer = BytesIO()
    buffer.write(frame[: header.body_position])
    entity_writer(type(request))(buffer, request)
    return buffer.getvalue()
