"""The protocol layer decodes any bytes from a client to a request, or raises MalformedRequest, in bounded memory."""

from io import BytesIO
from random import Random
from struct import pack

from kio.index import load_request_schema
from kio.serial import entity_writer
from tests.fuzz.mutations import fuzz, instance, mutate

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.errors import MalformedRequest
from ottla.protocol.fetch_codec import decode_fetch_request
from ottla.protocol.framing import FrameAssembler, read_request_header
from ottla.protocol.messages import decode_request
from ottla.protocol.produce_codec import decode_produce_request

MAX_FRAME_BYTES = 100_000
FIRST_FLEXIBLE = {int(key): spec.first_flexible for key, spec in APIS.items()}


def feed(assembler: FrameAssembler, data: bytes, random: Random) -> list[bytes]:
    """Passes `data` to the assembler in chunks of random size."""
    frames: list[bytes] = []
    position = 0
    while position < len(data):
        buffer = assembler.buffer()
        count = min(random.choice((1, 3, 100, 5_000)), len(buffer), len(data) - position)
        buffer[:count] = data[position : position + count]
        position += count
        frames += (bytes(frame) for frame in assembler.received(count))
    return frames


def test_frames_are_assembled_from_chunks_of_any_size() -> None:
    def case(random: Random) -> None:
        sizes = [random.choice((0, 1, 10, 3_000, 90_000)) for _ in range(random.randrange(6))]
        frames = [random.randbytes(size) for size in sizes]
        stream = b"".join(pack(">i", len(frame)) + frame for frame in frames)
        assembler = FrameAssembler(bytearray(4_096), MAX_FRAME_BYTES)
        assert feed(assembler, stream, random) == frames

    fuzz(case)


def test_a_broken_stream_is_rejected_or_waits_for_more_bytes() -> None:
    def case(random: Random) -> None:
        frames = [random.randbytes(random.randrange(200)) for _ in range(random.randrange(4))]
        stream = mutate(random, b"".join(pack(">i", len(frame)) + frame for frame in frames))
        try:
            for frame in feed(FrameAssembler(bytearray(4_096), MAX_FRAME_BYTES), stream, random):
                read_request_header(frame, FIRST_FLEXIBLE)
        except MalformedRequest:
            pass

    fuzz(case)


def test_a_broken_request_of_any_api_and_version_is_read_or_rejected() -> None:
    def case(random: Random) -> None:
        key = random.choice(list(APIS))
        spec = APIS[key]
        version = random.randint(spec.min_version, spec.latest_enabled(unstable=False))
        schema = load_request_schema(key, version)
        buffer = BytesIO()
        entity_writer(schema)(buffer, instance(random, schema))
        body = memoryview(mutate(random, buffer.getvalue()))
        try:
            if key is ApiKey.PRODUCE:
                decode_produce_request(body, version)
            elif key is ApiKey.FETCH:
                decode_fetch_request(body, version)
            else:
                decode_request(key, version, body)
        except MalformedRequest:
            pass

    fuzz(case)
