"""Forms of values in a record that only MariaDB and MySQL have, the same from a snapshot and from the binlog."""

import datetime
import struct

from ottla.pipeline.ingest.cdc.values import base64_text


def timestamp(seconds: int, microseconds: int, precision: int) -> str | None:
    """ISO 8601 with as many digits as the column has. Zero is MySQL's zero date, not 1970."""
    if seconds == 0 and microseconds == 0:
        return None
    time = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    fraction = f".{microseconds:06d}"[: precision + 1] if precision else ""
    return f"{time:%Y-%m-%dT%H:%M:%S}{fraction}Z"


def bits(value: int, width: int) -> bool | str:
    """BIT(1) is a boolean, wider ones are bytes, the lowest first."""
    if width == 1:
        return bool(value)
    return base64_text(value.to_bytes((width + 7) // 8, "little"))


def geometry(data: bytes) -> dict[str, str | int]:
    """MySQL stores the spatial reference system before the well-known binary form."""
    return {"wkb": base64_text(data[4:]), "srid": int.from_bytes(data[:4], "little")}


def shortest_float(value: float) -> float:
    """The shortest number with the same four bytes as a FLOAT: 3.14 rather than 3.140000104904175."""
    packed = struct.pack("<f", value)
    for digits in range(6, 9):
        short = float(f"{value:.{digits}g}")
        if struct.pack("<f", short) == packed:
            return short
    return float(f"{value:.9g}")


def vector(data: bytes) -> list[float]:
    return [shortest_float(number) for (number,) in struct.iter_unpack("<f", data)]
