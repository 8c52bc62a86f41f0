"""Subscriptions and assignments of the embedded protocol, compared with kio."""

import io
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from kio.schema.consumer_protocol_assignment.v3 import data as assignment_schema
from kio.schema.consumer_protocol_subscription.v0 import data as v0
from kio.schema.consumer_protocol_subscription.v1 import data as v1
from kio.schema.consumer_protocol_subscription.v2 import data as v2
from kio.schema.consumer_protocol_subscription.v3 import data as v3
from kio.serial import entity_writer
from tests.examples import examples

from ottla.core.groups.consumer_protocol import (
    read_assignment,
    read_subscribed_topics,
    read_subscription,
    write_assignment,
)

names = st.text(min_size=1, max_size=10)
topics = st.lists(names, max_size=4).map(tuple)
owned = st.dictionaries(names, st.lists(st.integers(0, 1000), max_size=4).map(tuple), max_size=4)
user_data = st.none() | st.binary(max_size=8)


def written(version: int, message: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(message))(buffer, message)
    return version.to_bytes(2, "big") + buffer.getvalue()


@examples(50)
@given(topics, user_data, owned, st.integers(-1, 2**31 - 1), st.none() | names)
def test_subscriptions_of_every_version_are_read(
    topics: tuple[str, ...],
    user_data: bytes | None,
    owned: dict[str, tuple[int, ...]],
    generation_id: int,
    rack_id: str | None,
) -> None:
    everything = {
        "topics": topics,
        "user_data": user_data,
        "generation_id": generation_id,
        "rack_id": rack_id,
    }
    fields = {0: 2, 1: 2, 2: 3, 3: 4}
    for version, schema in enumerate((v0, v1, v2, v3)):
        values = dict(list(everything.items())[: fields[version]])
        if version > 0:
            values["owned_partitions"] = tuple(
                schema.TopicPartition(topic=topic, partitions=partitions)
                for topic, partitions in owned.items()
            )
        raw = written(version, schema.ConsumerProtocolSubscription(**values))
        subscription = read_subscription(raw)
        assert subscription is not None
        assert subscription.version == version
        assert read_subscribed_topics(raw) == subscription.topics == topics
        assert subscription.user_data == user_data
        assert dict(subscription.owned_partitions) == (owned if version >= 1 else {})
        assert subscription.generation_id == (generation_id if version >= 2 else -1)
        assert subscription.rack_id == (rack_id if version >= 3 else None)


@examples(50)
@given(owned, st.integers(0, 3))
def test_an_assignment_is_written_as_kio_writes_it_and_read_back(
    partitions: dict[str, tuple[int, ...]], version: int
) -> None:
    message = assignment_schema.ConsumerProtocolAssignment(
        assigned_partitions=tuple(
            assignment_schema.TopicPartition(topic=topic, partitions=indexes)
            for topic, indexes in partitions.items()
        )
    )
    raw = write_assignment(version, partitions)
    assert raw == written(version, message)
    assignment = read_assignment(raw)
    assert assignment is not None
    assert (assignment.version, dict(assignment.partitions)) == (version, partitions)


def test_a_newer_version_is_read_as_the_highest_known_one() -> None:
    raw = b"\x00\x09" + b"\x00" * 3 + b"\x01\x00\x01t" + b"\xff" * 4 + b"\x00" * 4 + b"\xff" * 4 + b"\xff" * 2
    subscription = read_subscription(raw + b"what comes after")
    assert subscription is not None
    assert (subscription.version, subscription.topics) == (3, ("t",))


@examples(300)
@given(st.binary(max_size=40))
def test_any_bytes_of_a_client_are_read_or_malformed(raw: bytes) -> None:
    read_subscription(raw)
    read_subscribed_topics(raw)
    read_assignment(raw)


def test_truncated_bytes_are_malformed() -> None:
    whole = write_assignment(1, {"orders": (0, 1, 2)})
    assert all(read_assignment(whole[:length]) is None for length in range(len(whole)))
    assert read_subscribed_topics(b"\x00\x00\x7f\xff\xff\xff") is None
    assert read_subscription(b"\xff\xff") is None
