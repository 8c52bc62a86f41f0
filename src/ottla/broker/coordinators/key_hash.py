"""The partition of an internal topic for a key, by Java's hash of the string as in every Kafka broker."""

from functools import lru_cache


@lru_cache(maxsize=65_536)
def partition_for(key: str, num_partitions: int) -> int:
    return (java_hash(key) & 0x7FFF_FFFF) % num_partitions


def java_hash(text: str) -> int:
    """`String.hashCode` as an unsigned number, over UTF-16 code units: a surrogate pair counts as two."""
    code_units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for high, low in zip(code_units[::2], code_units[1::2], strict=True):
        value = (value * 31 + (high << 8 | low)) & 0xFFFF_FFFF
    return value
