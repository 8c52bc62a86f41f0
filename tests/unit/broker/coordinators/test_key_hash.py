"""Every broker of a cluster must find the same partition for a group or a transactional id."""

import pytest

from ottla.broker.coordinators.key_hash import java_hash, partition_for


@pytest.mark.parametrize(
    ("key", "hash_code", "of_50", "of_4"),
    [
        ("", 0, 0, 0),
        ("payments", 1382682413, 13, 1),
        ("orders", -1008770331, 31, 3),
        ("billing", -109829509, 9, 1),
        ("shipping-service", -1704330858, 8, 2),
        ("März", 2516671, 21, 3),
        ("😀 group", -1570619006, 6, 2),
        ("polygenelubricants", -(1 << 31), 0, 0),  # its absolute value is not an int in Java
    ],
)
def test_a_key_has_the_partition_that_kafka_finds(key: str, hash_code: int, of_50: int, of_4: int) -> None:
    """The numbers are those of Java's String.hashCode and of Utils.abs of Apache Kafka 4.3.1."""
    assert java_hash(key) == hash_code
    assert (partition_for(key, 50), partition_for(key, 4)) == (of_50, of_4)
