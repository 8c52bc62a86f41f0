"""The partition of an internal topic for a key, by Java's hash of the string as in every Kafka broker."""

from functools import lru_cache

_SIGN = 0x8000_0000


@lru_cache(maxsize=65_536)
def partition_for(key: str, num_partitions: int) -> int:
    """By the absolute value of the hash, as Kafka's coordinators do; its producers clear the sign bit instead.

    The smallest int, whose absolute value Java cannot represent, counts as 0.
    """
    hash_code = java_hash(key)
    return 0 if hash_code == -_SIGN else abs(hash_code) % num_partitions


def java_hash(text: str) -> int:
    """`String.hashCode`, a signed int, over UTF-16 code units: a surrogate pair counts as two."""
    code_units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for high, low in zip(code_units[::2], code_units[1::2], strict=True):
        value = (value * 31 + (high << 8 | low)) & 0xFFFF_FFFF
    return (value ^ _SIGN) - _SIGN
