"""Lists of brokers as users write them."""

import pytest

from ottla.rpc import Address, parse_bootstrap_servers


@pytest.mark.parametrize(
    ("servers", "found"),
    [
        ("a:1", [Address("a", 1)]),
        ("a:1, b:2,", [Address("a", 1), Address("b", 2)]),
        ("PLAINTEXT://a:1", [Address("a", 1)]),
        ("[::1]:1", [Address("::1", 1)]),
        ("a", [Address("a", 9092)]),
    ],
)
def test_bootstrap_servers_are_read_as_librdkafka_reads_them(servers: str, found: list[Address]) -> None:
    assert parse_bootstrap_servers(servers) == found
