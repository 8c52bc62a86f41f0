"""Requests of every API and version with values that no client sends: each gets a response or is malformed.

An exception in a handler would be an error in the log.
"""

import logging
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from io import BytesIO
from random import Random
from typing import Any
from uuid import UUID

import pytest
from kio.index import load_request_schema
from kio.serial import entity_writer
from tests.unit.broker.broker_bench import Bench, Raw, until
from tests.unit.broker.transaction_bench import on_small_broker

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import entity_in, is_array, is_optional, kafka_type

ROUNDS = 12
KNOWN_ID = UUID(int=7)
# Names that exist, names that do not, and the limits of the types.
NAMES = (
    "journal",
    "g",
    "tx",
    "",
    "nowhere",
    "__consumer_offsets",
    "*",
    "..",
    "é" * 100,
    "\x00",
    "1",
    "range",
)
BITS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}


class Awkward:
    def __init__(self, random: Random, topic_id: UUID) -> None:
        self._random = random
        self._topic_id = topic_id

    def message(self, schema: Any) -> Any:
        return schema(**{field.name: self._value(field) for field in fields(schema)})

    def _value(self, field: Any) -> Any:
        choose = self._random.choice
        if is_optional(field.type) and self._random.random() < 0.2:
            return None
        if is_array(field.type):
            return tuple(self._single(field) for _ in range(choose((0, 1, 1, 2))))
        return self._single(field)

    def _single(self, field: Any) -> Any:
        entity = entity_in(field.type)
        if entity is not None:
            return self.message(entity)
        choose, kind = self._random.choice, kafka_type(field)
        if kind in BITS:
            return choose((0, 0, 1, 1, 2, -1, -2, 100, 2 ** BITS[kind] - 1, -(2 ** BITS[kind])))
        match kind:
            case "uint16":
                return choose((0, 1, 9092, 65535))
            case "float64":
                return choose((0.0, -1.0, float("inf"), float("nan")))
            case "string":
                return choose(NAMES)
            case "bytes" | "records":
                return self._random.randbytes(choose((0, 1, 61, 100)))
            case "bool":
                return choose((True, False))
            case "uuid":
                return choose((self._topic_id, KNOWN_ID, UUID(int=2**128 - 1)))
            case "timedelta_i32" | "timedelta_i64":
                return timedelta(milliseconds=choose((0, 1, 100, 30_000)))
            case "datetime_i64":
                return datetime.fromtimestamp(choose((0, 1)), UTC)
        raise AssertionError(f"no value for {kind}")


def body_of(message: Any) -> bytes:
    buffer = BytesIO()
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()


@pytest.mark.parametrize("key", APIS, ids=lambda key: key.name)
def test_a_request_with_unusual_values_gets_a_response_or_is_malformed(
    key: ApiKey, caplog: pytest.LogCaptureFixture
) -> None:
    random = Random(key.value)

    @on_small_broker(unstable_api_versions_enable="true")
    async def run(bench: Bench) -> None:
        topic_id = await bench.create("journal", partitions=2)
        await bench.services.groups.get().find_coordinator("g")
        await bench.services.transactions.get().find_coordinator("tx")
        awkward = Awkward(random, topic_id)
        for version in range(APIS[key].min_version, APIS[key].max_version + 1):
            flexible = version >= APIS[key].first_flexible
            for number in range(ROUNDS):
                raw = await Raw.connect(bench, f"raw-{version}-{number}")
                message = awkward.message(load_request_schema(key, version))
                raw.send(key, version, (b"\x00" if flexible else b"") + body_of(message))
                if not (key is ApiKey.PRODUCE and message.acks == 0):
                    await until(lambda raw=raw: bool(raw.data) or raw.is_closed, 0.01)  # type: ignore[misc]
                raw.stream.close()

    with caplog.at_level(logging.INFO, "ottla"):
        run()
    unexpected = [record for record in caplog.records if record.exc_info]
    assert not unexpected, [(record.getMessage(), record.exc_info) for record in unexpected]
