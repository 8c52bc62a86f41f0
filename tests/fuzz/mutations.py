"""A fuzzer: breaks valid inputs in ways that typically break parsers, for a given time, from a seed."""

import os
import time
from collections.abc import Callable
from dataclasses import fields
from random import Random
from typing import Any

from ottla.protocol.schema import default_of, entity_in, is_array, is_optional, kafka_type

# Lengths and counts at the limits of their types.
EDGE_VALUES = (
    b"\x00",
    b"\xff",
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff\x0f",
)
TARGETS = 6


def fuzz(case: Callable[[Random], None]) -> None:
    """Runs `case` with one seed after another until this target's share of OTTLA_FUZZ_SECONDS is used up."""
    end = time.monotonic() + float(os.environ.get("OTTLA_FUZZ_SECONDS", "4")) / TARGETS
    seed = int(os.environ.get("OTTLA_FUZZ_SEED", Random().getrandbits(48)))
    while True:
        try:
            case(Random(seed))
        except Exception as error:
            error.add_note(f"reproduce with OTTLA_FUZZ_SEED={seed}")
            raise
        seed += 1
        if time.monotonic() > end:
            return


def mutate(random: Random, data: bytes) -> bytes:
    """Returns `data` with up to three changes."""
    broken = bytearray(data)
    for _ in range(random.randrange(4)):
        position = random.randrange(len(broken) + 1)
        match random.randrange(6):
            case 0 if broken:
                broken[position % len(broken)] ^= 1 << random.randrange(8)
            case 1:
                value = random.choice(EDGE_VALUES)
                broken[position : position + len(value)] = value
            case 2:
                del broken[position:]
            case 3:
                del broken[position : position + random.randint(1, 8)]
            case 4:
                broken[position:position] = random.randbytes(random.randint(1, 8))
            case _:
                length = random.randint(1, 16)
                broken[position:position] = broken[:length]
    return bytes(broken)


def instance(random: Random, schema: Any) -> Any:
    """A valid message of a kio class, with random elements in its arrays."""
    return schema(**{field.name: _value(random, field) for field in fields(schema)})


def _value(random: Random, field: Any) -> Any:
    if is_optional(field.type) and random.random() < 0.3:
        return default_of(field)
    entity = entity_in(field.type)
    if entity is not None:
        if is_array(field.type):
            return tuple(instance(random, entity) for _ in range(random.randrange(3)))
        return instance(random, entity)
    if is_array(field.type):
        return field.default if isinstance(field.default, tuple) else ()
    match kafka_type(field):
        case "string":
            return random.choice(("", "topic", "\N{SNOWMAN}" * 40))
        case "bytes" | "records":
            return random.randbytes(random.randrange(100))
        case "bool":
            return random.random() < 0.5
    return default_of(field)
