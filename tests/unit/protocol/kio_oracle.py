"""Messages by kio as an oracle: our codecs must read what kio writes, and write the same bytes."""

from datetime import timedelta
from io import BytesIO
from typing import Any

from hypothesis import HealthCheck
from hypothesis import strategies as st
from kio.serial import entity_writer
from kio.static.primitive import Records
from tests.examples import examples

st.register_type_strategy(Records, st.binary(max_size=40).map(Records))

MESSAGES = examples(6, suppress_health_check=list(HealthCheck))
MUTATIONS = examples(40)


def kio_bytes(message: Any) -> bytes:
    buffer = BytesIO()
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()


def milliseconds(time: timedelta) -> int:
    return time // timedelta(milliseconds=1)


@st.composite
def mutations(draw: st.DrawFn, raw: bytes) -> memoryview:
    """`raw` with some bytes changed, and perhaps cut or longer."""
    body = bytearray(raw)
    for _ in range(draw(st.integers(1, 4))):
        body[draw(st.integers(0, len(body) - 1))] = draw(st.integers(0, 255))
    return memoryview(body[: draw(st.integers(0, len(body)))] if draw(st.booleans()) else body)
