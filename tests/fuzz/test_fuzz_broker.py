"""A broker that gets broken requests: recorded from real clients, or generated for every API and version.

It responds or closes the connection, serves other clients meanwhile, keeps its memory, and logs no unexpected error.
"""

import contextlib
import re
import socket
import struct
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from random import Random

import pytest
from kio.index import load_request_schema
from kio.serial import entity_writer
from tests.fuzz.corpus import TOPIC, recorded_requests
from tests.fuzz.mutations import fuzz, instance, mutate
from tests.interop.brokers import RunningBroker, run_ottla
from tests.interop.librdkafka import create_topic
from tests.interop.neighbour import Neighbour
from tests.interop.wire import address_of

from ottla.protocol.api_keys import APIS

FRAMES_PER_CONNECTION = 8
RESPONSE_WAIT_S = 0.05
MEMORY_GROWTH_KB_MAX = 300_000
TURN_MS_MAX = 1_000
_HELD = re.compile(r"the event loop was held for (\d+) ms")
_FIRST_FLEXIBLE = {int(key): spec.first_flexible for key, spec in APIS.items()}


def generated_request(random: Random) -> bytes:
    """A request of any supported API and version, with random values."""
    key = random.choice(list(APIS))
    spec = APIS[key]
    version = random.randint(spec.min_version, spec.latest_enabled(unstable=False))
    schema = load_request_schema(key, version)
    body = BytesIO()
    entity_writer(schema)(body, instance(random, schema))
    tags = b"\0" if version >= _FIRST_FLEXIBLE[int(key)] else b""
    return struct.pack(">hhih", int(key), version, 1, 4) + b"fuzz" + tags + body.getvalue()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    with run_ottla(tmp_path / "data") as running:
        create_topic(running.bootstrap, "neighbour")
        create_topic(running.bootstrap, TOPIC)
        yield running


def send_and_read(broker: RunningBroker, frames: list[bytes]) -> None:
    """Sends all frames at once, then reads until nothing comes or the broker closes the connection."""
    with (
        contextlib.suppress(OSError),
        socket.create_connection(address_of(broker.bootstrap), timeout=5.0) as connection,
    ):
        connection.sendall(b"".join(struct.pack(">i", len(frame)) + frame for frame in frames))
        connection.settimeout(RESPONSE_WAIT_S)
        while connection.recv(1 << 16):
            pass


def test_a_broker_survives_broken_requests(broker: RunningBroker) -> None:
    recorded = recorded_requests()
    sent = 0

    def case(random: Random) -> None:
        nonlocal sent
        frames = [
            mutate(random, random.choice(recorded) if random.random() < 0.6 else generated_request(random))
            for _ in range(random.randint(1, FRAMES_PER_CONNECTION))
        ]
        send_and_read(broker, frames)
        sent += len(frames)
        assert broker.is_alive(), broker.log_tail()

    with Neighbour(broker, "neighbour") as neighbour:
        fuzz(case)
        neighbour.wait_for_requests()
    log = broker.log_text()
    longest_ms = max((int(held) for held in _HELD.findall(log)), default=0)
    print(f"fuzz: {sent} frames, longest turn of the event loop above the bound: {longest_ms} ms")
    assert sent > 0
    assert "Traceback" not in log, log[-4000:]
    assert longest_ms < TURN_MS_MAX, log[-4000:]
    assert neighbour.peak_kb - neighbour.before_kb < MEMORY_GROWTH_KB_MAX
