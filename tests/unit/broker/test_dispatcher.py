"""The dispatcher, with raw bytes of requests and responses."""

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from struct import pack, unpack
from types import ModuleType, SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.api_versions.v0.response import ApiVersionsResponse
from kio.schema.api_versions.v4.request import ApiVersionsRequest
from kio.schema.describe_groups.v5.response import DescribeGroupsResponse
from kio.serial import entity_reader
from tests.unit.broker.broker_bench import Bench, Raw, on_broker, produce_request, until

from ottla.broker.dispatch import Dispatcher
from ottla.broker.handlers import k60_describe_cluster
from ottla.broker.long_requests import REQUEST_BYTES_ON_LOOP
from ottla.model.errors import ErrorCode
from ottla.protocol import messages
from ottla.protocol.api_keys import APIS, ApiKey, ListenerKind, apis_of
from ottla.protocol.messages import converter, decode_request
from ottla.protocol.varint import encode_uvarint
from ottla.rpc.messages import encode_message
from ottla.sim.threads import SimThreads


def test_every_api_that_is_offered_has_a_handler_and_kio_has_all_its_versions() -> None:
    from importlib import import_module

    for key, spec in APIS.items():
        module: ModuleType = import_module(f"ottla.broker.handlers.k{key.value:02d}_{key.name.lower()}")
        assert hasattr(module, "handle") or hasattr(module, "handle_body")
        for version in range(spec.min_version, spec.max_version + 1):
            request: Any = load_request_schema(key, version)
            load_response_schema(key, version)
            assert bool(request.__flexible__) == (version >= spec.first_flexible)


@pytest.mark.parametrize("version", [5, 99, 32767])
def test_the_response_to_an_unknown_api_versions_version_is_version_0_with_error_35(
    version: int,
) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        raw = await Raw.connect(bench)
        raw.send(18, version, b"\x00\x01\x02")
        response = await raw.response()
        assert response[:4] == pack(">i", 7)
        message, size = entity_reader(ApiVersionsResponse)(response, 4)
        assert 4 + size == len(response)
        assert message.error_code is ErrorCode.unsupported_version
        assert [(api.api_key, api.min_version, api.max_version) for api in message.api_keys] == [(18, 0, 4)]
        assert not raw.is_closed
        raw.send(18, 0)
        assert unpack(">h", (await raw.response())[4:6]) == (0,)

    run()


@pytest.mark.parametrize(
    ("api_key", "version", "reason"),
    [
        (999, 0, "API key 999 is unknown or not supported"),
        (-1, 0, "API key -1 is unknown"),
        (0, 2, "PRODUCE v2 is not supported: this broker speaks v3 to v13"),
        (22, 6, "INIT_PRODUCER_ID v6 is not supported: this broker speaks v0 to v5"),
        (3, 14, "METADATA v14 is not supported: this broker speaks v0 to v13"),
        (3, -1, "METADATA v-1 is not supported"),
        (3, 1, "METADATA v1 cannot be read"),
    ],
)
def test_an_unsupported_request_closes_the_connection_and_the_reason_is_logged(
    api_key: int, version: int, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        raw = await Raw.connect(bench)
        raw.send(api_key, version, b"\x00\x7f\xff\xff\xff")
        await until(lambda: raw.is_closed)
        assert raw.data == b""
        await bench.create("journal")  # the broker is started

    with caplog.at_level(logging.INFO, "ottla"):
        run()
    (line,) = [r.getMessage() for r in caplog.records if r.name == "ottla.network"]
    assert reason in line


@pytest.mark.parametrize("key", APIS, ids=lambda key: key.name)
def test_a_request_without_a_body_is_malformed_or_gets_a_response(
    key: ApiKey, caplog: pytest.LogCaptureFixture
) -> None:
    @on_broker(unstable_api_versions_enable="true")
    async def run(bench: Bench) -> None:
        raw = await Raw.connect(bench)
        raw.send(key, APIS[key].max_version, b"\x00")  # the tagged fields of the header
        await until(lambda: raw.is_closed or bool(raw.data))

    with caplog.at_level(logging.INFO, "ottla"):
        run()
    assert not [record.getMessage() for record in caplog.records if record.exc_info]


def test_a_handler_that_raises_closes_only_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object) -> None:
        raise ZeroDivisionError("a bug")

    @on_broker()
    async def run(bench: Bench) -> None:
        raw, other = await Raw.connect(bench), await Raw.connect(bench, "other")
        monkeypatch.setattr(k60_describe_cluster, "handle", broken)
        raw.send(60, 0, b"\x00\x00\x00")
        await until(lambda: raw.is_closed)
        other.send(18, 0)
        await other.response()
        assert not other.is_closed

    run()


def test_an_async_handler_that_raises_closes_only_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*arguments: object) -> None:
        await asyncio.sleep(1)
        raise ZeroDivisionError("a bug")

    @on_broker()
    async def run(bench: Bench) -> None:
        raw, other = await Raw.connect(bench), await Raw.connect(bench, "other")
        monkeypatch.setattr(k60_describe_cluster, "handle", broken)
        raw.send(60, 0, b"\x00\x00\x00")
        await until(lambda: raw.is_closed)
        other.send(18, 0)
        await other.response()

    run()


def test_requests_behind_an_async_one_are_served_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = k60_describe_cluster.handle

    async def slow(*arguments: Any) -> Any:
        await asyncio.sleep(5)
        return real(*arguments)

    @on_broker()
    async def run(bench: Bench) -> None:
        raw = await Raw.connect(bench)
        monkeypatch.setattr(k60_describe_cluster, "handle", slow)
        raw.send(60, 0, b"\x00\x00\x00", correlation_id=1)
        raw.send(18, 0, correlation_id=2)
        await asyncio.sleep(1)
        assert raw.data == b""
        assert (await raw.response())[:4] == pack(">i", 1)
        assert (await raw.response())[:4] == pack(">i", 2)

    run()


def many_names(count: int) -> bytes:
    """The body of a DescribeGroups v5 with its header's tagged fields."""
    names = b"".join(b"\x07%06x" % number for number in range(count))
    return b"\0" + encode_uvarint(count + 1) + names + b"\0\0"


def test_a_long_request_is_decoded_in_a_thread_and_served_in_order() -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        raw = await Raw.connect(bench)
        assert len(many_names(10_000)) > REQUEST_BYTES_ON_LOOP
        raw.send(15, 5, many_names(10_000), correlation_id=1)
        raw.send(18, 0, correlation_id=2)
        response = await raw.response()
        assert response[:4] == pack(">i", 1)
        described = entity_reader(DescribeGroupsResponse)(response, 5)[0]
        assert [group.group_id for group in described.groups] == [f"{number:06x}" for number in range(10_000)]
        assert (await raw.response())[:4] == pack(">i", 2)

    run()


def test_a_malformed_long_request_closes_the_connection_and_the_reason_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        raw = await Raw.connect(bench)
        raw.send(15, 5, many_names(10_000)[:-100])
        await until(lambda: raw.is_closed)

    with caplog.at_level(logging.INFO, "ottla"):
        run()
    (line,) = [record for record in caplog.records if record.name == "ottla.network"]
    assert "DESCRIBE_GROUPS v5 cannot be read" in line.getMessage()
    assert line.exc_info is None


def test_the_first_produce_request_takes_effect_though_its_client_disconnects_at_once() -> None:
    """Its handler is loaded in a thread, and with acks=0 the client does not wait for a response."""

    @on_broker()
    async def run(bench: Bench) -> None:
        topic_id = await bench.create("a")
        request = produce_request("a", bench.batch(b"kept"), acks=0)
        raw = await Raw.connect(bench)
        raw.send(0, request.__version__, b"\0" + encode_message(request))  # no tagged fields in the header
        raw.stream.close()
        hosted = bench.services.partitions.find_replica("a", None, 0)
        await until(lambda: hosted.log.log_end_offset == 1)
        assert await bench.read(topic_id) == [b"kept"]

    run()


def test_no_response_is_built_for_a_long_request_whose_client_has_disconnected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[int] = []
    encoded: list[ApiKey] = []

    real_run, real_encode = SimThreads.run, messages.encode_response

    def decode(*arguments: Any) -> Any:
        read.append(1)
        return decode_request(*arguments)

    def encode(key: ApiKey, *arguments: Any) -> bytes:
        encoded.append(key)
        return real_encode(key, *arguments)

    async def run_slowly(threads: SimThreads, work: Callable[[], Any]) -> Any:
        result = await real_run(threads, work)
        await asyncio.sleep(0.5)  # the broker sees the disconnection before the result
        return result

    @on_broker()
    async def run(bench: Bench) -> None:
        raw, other = await Raw.connect(bench), await Raw.connect(bench, "other")
        monkeypatch.setattr(messages, "decode_request", decode)
        monkeypatch.setattr(SimThreads, "run", run_slowly)
        monkeypatch.setattr(messages, "encode_response", encode)
        raw.send(15, 5, many_names(10_000))
        await until(lambda: bool(read))
        raw.stream.close()
        other.send(18, 0)
        await other.response()
        await asyncio.sleep(2)

    run()
    assert encoded == [ApiKey.API_VERSIONS]


def test_a_stop_cancels_async_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    async def endless(*arguments: object) -> None:
        await asyncio.sleep(10_000)

    @on_broker(started=False)
    async def run(bench: Bench) -> None:
        await bench.start()
        raw = await Raw.connect(bench)
        monkeypatch.setattr(k60_describe_cluster, "handle", endless)
        raw.send(60, 0, b"\x00\x00\x00")
        await asyncio.sleep(1)
        await asyncio.wait_for(bench.stop(), 60)
        assert raw.is_closed

    run()


def test_an_older_request_is_lifted_to_the_newest_version() -> None:
    body = pack(">i", 1) + pack(">h", 1) + b"t"
    as_sent, request = decode_request(ApiKey.METADATA, 1, memoryview(body))
    assert as_sent.__version__ == 1
    assert request.__version__ == 13
    assert [topic.name for topic in request.topics] == ["t"]
    assert request.allow_auto_topic_creation


@on_broker()
async def test_the_software_of_a_client_is_kept_and_a_malformed_one_rejected(bench: Bench) -> None:
    def request(name: str) -> ApiVersionsRequest:
        return ApiVersionsRequest(client_software_name=name, client_software_version="1.0")

    assert (await bench.ask(request("-bad-"))).error_code is ErrorCode.invalid_request
    response = await bench.ask(request("ottla-test"))
    assert response.error_code is ErrorCode.none
    (connection,) = bench.broker.server.connections
    assert connection.client_software == ("ottla-test", "1.0")


def offered_versions(response: Any) -> dict[int, tuple[int, int]]:
    return {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}


@on_broker()
async def test_produce_is_offered_from_version_0_but_only_newer_versions_are_served(bench: Bench) -> None:
    request = ApiVersionsRequest(client_software_name="t", client_software_version="1")
    offered = offered_versions(await bench.ask(request))
    served = {key.value: (spec.min_version, spec.max_version) for key, spec in APIS.items()}
    assert {key: versions for key, versions in offered.items() if versions != served[key]} == {
        ApiKey.PRODUCE: (0, 13),
        ApiKey.INIT_PRODUCER_ID: (0, 5),
    }


@on_broker(unstable_api_versions_enable="true")
async def test_unstable_versions_are_offered_and_served_if_they_are_enabled(bench: Bench) -> None:
    request = ApiVersionsRequest(client_software_name="t", client_software_version="1")
    assert offered_versions(await bench.ask(request))[ApiKey.INIT_PRODUCER_ID] == (0, 6)
    newest: Any = load_request_schema(ApiKey.INIT_PRODUCER_ID, 6)
    answer = await bench.ask(newest(transactional_id=None, transaction_timeout=timedelta(seconds=1)))
    assert answer.error_code is ErrorCode.none


@pytest.mark.parametrize("receiver", [{}, {"ottla_telemetry_otlp_url": "http://collector:4318/v1/metrics"}])
def test_telemetry_is_offered_if_somebody_receives_it(receiver: dict[str, Any]) -> None:
    @on_broker(**receiver)
    async def run(bench: Bench) -> None:
        request = ApiVersionsRequest(client_software_name="t", client_software_version="1")
        offered = {api.api_key for api in (await bench.ask(request)).api_keys}
        assert offered == set(apis_of(ListenerKind.BROKER)) - (set() if receiver else {71, 72})

    run()


def test_a_converter_copies_common_fields_and_fills_in_defaults() -> None:
    newest: Any = load_request_schema(ApiKey.METADATA, 13)
    oldest: Any = load_request_schema(ApiKey.METADATA, 0)
    topic = SimpleNamespace(topic_id=UUID(int=1), name="t")
    request = SimpleNamespace(
        topics=(topic,), allow_auto_topic_creation=False, include_topic_authorized_operations=True
    )
    lowered = converter(newest, oldest)(request)
    assert [topic.name for topic in lowered.topics] == ["t"]


def test_the_first_request_of_an_api_version_loads_its_handler_in_a_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded: list[tuple[ApiKey, int]] = []
    in_thread = False
    real_run, real_load = SimThreads.run, Dispatcher._load

    async def run_work(threads: SimThreads, work: Callable[[], Any]) -> Any:
        def run_in_thread() -> Any:
            nonlocal in_thread
            in_thread = True
            try:
                return work()
            finally:
                in_thread = False

        return await real_run(threads, run_in_thread)

    def load(dispatcher: Dispatcher, key: ApiKey, version: int) -> Any:
        assert in_thread
        loaded.append((key, version))
        return real_load(dispatcher, key, version)

    monkeypatch.setattr(SimThreads, "run", run_work)
    monkeypatch.setattr(Dispatcher, "_load", load)

    @on_broker()
    async def run(bench: Bench) -> None:
        raw = await Raw.connect(bench)
        for version in (0, 0, 1, 0):
            raw.send(18, version)
            await raw.response()

    run()
    assert loaded == [(ApiKey.API_VERSIONS, 0), (ApiKey.API_VERSIONS, 1)]
