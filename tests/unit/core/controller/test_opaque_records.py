"""Records without effect (quotas, ACLs, credentials, tokens) are kept, but a later one replaces an earlier one."""

import struct

import pytest
from tests.unit.core.controller.controller_cluster import Cluster

from ottla.core.controller import delta as delta_module
from ottla.core.controller.delta import MetadataDelta, ReplayError
from ottla.core.controller.image import MetadataImage
from ottla.core.controller.snapshot import image_records
from ottla.protocol.metadata_records.codec import decode_record, encode_record
from ottla.protocol.metadata_records.records import OpaqueRecord


def text(value: str | None) -> bytes:
    return b"\0" if value is None else bytes((len(value) + 1,)) + value.encode()


def quota(user: str | None, value: float, remove: bool = False, key: str = "rate") -> OpaqueRecord:
    entity = b"\x02" + text("user") + text(user) + b"\0"
    return OpaqueRecord(14, 0, entity + text(key) + struct.pack(">d?", value, remove) + b"\0")


def credential(name: str, iterations: int, mechanism: int = 1) -> OpaqueRecord:
    secrets = text("salt") + text("stored") + text("server")
    return OpaqueRecord(
        11, 0, text(name) + bytes((mechanism,)) + secrets + struct.pack(">i", iterations) + b"\0"
    )


def token(token_id: str, expires: int) -> OpaqueRecord:
    owners = text("User:a") + text("User:b") + b"\x02" + text("User:c")
    return OpaqueRecord(10, 0, owners + struct.pack(">qqq", 1, 2, expires) + text(token_id) + b"\0")


def kept(*records: OpaqueRecord) -> list[OpaqueRecord]:
    cluster = Cluster()
    cluster.write(*records)
    image = cluster.image
    loaded = MetadataDelta(MetadataImage())
    for record in image_records(image):
        loaded.replay(decode_record(encode_record(record)))
    assert loaded.image(image.offset, image.epoch) == image
    return list(image.opaque.values())


def test_the_last_quota_of_an_entity_is_kept_until_it_is_removed() -> None:
    assert kept(quota("a", 1), quota("b", 1), quota("a", 2)) == [quota("a", 2), quota("b", 1)]
    assert kept(quota(None, 1), quota("a", 1), quota("a", 1, key="bytes")) == [
        quota(None, 1),
        quota("a", 1),
        quota("a", 1, key="bytes"),
    ]
    assert kept(quota("a", 1), quota("b", 1), quota("a", 0, remove=True)) == [quota("b", 1)]


def test_the_last_credential_of_a_user_is_kept_until_it_is_removed() -> None:
    assert kept(credential("a", 1), credential("a", 2), credential("a", 3, mechanism=2)) == [
        credential("a", 2),
        credential("a", 3, mechanism=2),
    ]
    removal = OpaqueRecord(22, 0, text("a") + b"\x01\0")
    assert kept(credential("a", 1), removal) == []


def test_a_token_is_kept_until_it_is_removed() -> None:
    assert kept(token("t", 1), token("u", 1), token("t", 2)) == [token("t", 2), token("u", 1)]
    assert kept(token("t", 1), OpaqueRecord(26, 0, text("t") + b"\0")) == []


def test_an_acl_is_kept_until_it_is_removed() -> None:
    first, second = (OpaqueRecord(18, 0, bytes((number,)) * 16 + b"acl") for number in (1, 2))
    assert kept(first, second, first) == [first, second]
    assert kept(first, second, OpaqueRecord(19, 0, b"\x01" * 16 + b"\0")) == [second]


def test_a_removal_of_what_does_not_exist_is_no_error() -> None:
    assert kept(OpaqueRecord(26, 0, text("t") + b"\0")) == []


def test_records_that_cannot_be_read_and_records_of_later_releases_are_kept() -> None:
    records = [OpaqueRecord(14, 0, b"damaged"), OpaqueRecord(18, 0, b"short"), OpaqueRecord(99, 3, b"new")]
    assert kept(*records, *records) == records


def test_records_of_later_releases_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_module, "UNKNOWN_RECORDS_MAX", 3)
    cluster = Cluster()
    for number in range(3):
        cluster.write(OpaqueRecord(99, 0, bytes((number,))))
        assert len(cluster.image.opaque) == number + 1
    cluster.write(OpaqueRecord(99, 0, b"\0"), *(quota(f"u{number}", 1) for number in range(9)))
    with pytest.raises(ReplayError, match="more than 3 records of types that this release does not know"):
        cluster.write(OpaqueRecord(98, 0, b""))
