"""Kafka's DumpLogSegments, with its decoders, reads every record of groups and transactions that Ottla writes."""

import json
import subprocess
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.interop.kafka_jars import ensure_jars, java_command

from ottla.env.real_disk import RealDisk
from ottla.model.ids import TopicPartition, uuid_to_string
from ottla.protocol.group_records import codec as group_codec
from ottla.protocol.group_records.records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    CurrentTopicPartitions,
    ExpiringOffsetCommitValue,
    GroupKey,
    GroupMetadataKey,
    GroupMetadataValue,
    GroupValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    TargetTopicPartitions,
)
from ottla.protocol.transaction_records import codec as transaction_codec
from ottla.protocol.transaction_records.records import (
    TransactionLogKey,
    TransactionLogValue,
    TransactionPartitions,
)
from ottla.records.header import read_header
from ottla.records.records import Record, build_batch
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig

pytestmark = pytest.mark.java

NOW_MS = 1_700_000_000_000
TOPIC_ID = uuid.UUID("001dfe72-7593-4c30-8354-0c8a78e15dd3")
SHOWN_ID = uuid_to_string(TOPIC_ID)

# Each record with what Kafka shows as the version and data of its value. A member's subscription and assignment are
# Kafka's ConsumerProtocol, which the decoder parses if they are not empty.
GROUP_RECORDS: list[tuple[GroupKey, GroupValue | None, dict[str, Any], tuple[int, dict[str, Any]] | None]] = [
    (
        OffsetCommitKey(group="g", topic="orders", partition=7),
        OffsetCommitValue(
            offset=5, leader_epoch=3, metadata="né", commit_timestamp=NOW_MS, topic_id=TOPIC_ID
        ),
        {"group": "g", "topic": "orders", "partition": 7},
        (
            4,
            {"offset": 5, "leaderEpoch": 3, "metadata": "né", "commitTimestamp": NOW_MS, "topicId": SHOWN_ID},
        ),
    ),
    (
        OffsetCommitKey(group="g", topic="orders", partition=8),
        ExpiringOffsetCommitValue(
            offset=5, metadata="m", commit_timestamp=NOW_MS, expire_timestamp=NOW_MS + 1
        ),
        {"group": "g", "topic": "orders", "partition": 8},
        (
            1,
            {"offset": 5, "metadata": "m", "commitTimestamp": NOW_MS, "expireTimestamp": NOW_MS + 1},
        ),
    ),
    (
        OffsetCommitKey(group="g", topic="orders", partition=9),
        None,
        {"group": "g", "topic": "orders", "partition": 9},
        None,
    ),
    (
        GroupMetadataKey(group="g"),
        GroupMetadataValue(
            protocol_type="other",
            generation=3,
            protocol="range",
            leader="m",
            current_state_timestamp=NOW_MS,
            members=(
                MemberMetadata(
                    member_id="m",
                    group_instance_id="i",
                    client_id="c",
                    client_host="/127.0.0.1",
                    rebalance_timeout=300_000,
                    session_timeout=45_000,
                    subscription=b"ab",
                    assignment=b"",
                ),
            ),
        ),
        {"group": "g"},
        (
            3,
            {
                "protocolType": "other",
                "generation": 3,
                "protocol": "range",
                "leader": "m",
                "currentStateTimestamp": NOW_MS,
                "members": [
                    {
                        "memberId": "m",
                        "groupInstanceId": "i",
                        "clientId": "c",
                        "clientHost": "/127.0.0.1",
                        "rebalanceTimeout": 300_000,
                        "sessionTimeout": 45_000,
                        "subscription": "YWI=",
                        "assignment": "",
                    }
                ],
            },
        ),
    ),
    (
        ConsumerGroupMetadataKey(group_id="k"),
        ConsumerGroupMetadataValue(epoch=7, metadata_hash=-4954065252479253797),
        {"groupId": "k"},
        (0, {"epoch": 7, "metadataHash": -4954065252479253797}),
    ),
    (
        ConsumerGroupMemberMetadataKey(group_id="k", member_id="m"),
        ConsumerGroupMemberMetadataValue(
            instance_id="i",
            rack_id=None,
            client_id="c",
            client_host="/127.0.0.1",
            subscribed_topic_names=("orders", "payments"),
            subscribed_topic_regex="o.*",
            rebalance_timeout_ms=300_000,
            server_assignor=None,
            classic_member_metadata=ClassicMemberMetadata(
                session_timeout_ms=45_000,
                supported_protocols=(ClassicProtocol(name="range", metadata=b"ab"),),
            ),
        ),
        {"groupId": "k", "memberId": "m"},
        (
            0,
            {
                "instanceId": "i",
                "rackId": None,
                "clientId": "c",
                "clientHost": "/127.0.0.1",
                "subscribedTopicNames": ["orders", "payments"],
                "subscribedTopicRegex": "o.*",
                "rebalanceTimeoutMs": 300_000,
                "serverAssignor": None,
                "classicMemberMetadata": {
                    "sessionTimeoutMs": 45_000,
                    "supportedProtocols": [{"name": "range", "metadata": "YWI="}],
                },
            },
        ),
    ),
    (
        ConsumerGroupTargetAssignmentMetadataKey(group_id="k"),
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=7, assignment_timestamp=NOW_MS),
        {"groupId": "k"},
        (0, {"assignmentEpoch": 7, "assignmentTimestamp": NOW_MS}),
    ),
    (
        ConsumerGroupTargetAssignmentMemberKey(group_id="k", member_id="m"),
        ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=(TargetTopicPartitions(topic_id=TOPIC_ID, partitions=(0, 2)),)
        ),
        {"groupId": "k", "memberId": "m"},
        (0, {"topicPartitions": [{"topicId": SHOWN_ID, "partitions": [0, 2]}]}),
    ),
    (
        ConsumerGroupCurrentMemberAssignmentKey(group_id="k", member_id="m"),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=7,
            previous_member_epoch=6,
            state=1,
            assigned_partitions=(
                CurrentTopicPartitions(topic_id=TOPIC_ID, partitions=(0, 2), assignment_epochs=(6, 7)),
            ),
            partitions_pending_revocation=(CurrentTopicPartitions(topic_id=TOPIC_ID, partitions=(1,)),),
        ),
        {"groupId": "k", "memberId": "m"},
        (
            0,
            {
                "memberEpoch": 7,
                "previousMemberEpoch": 6,
                "state": 1,
                "assignedPartitions": [
                    {"topicId": SHOWN_ID, "partitions": [0, 2], "assignmentEpochs": [6, 7]}
                ],
                "partitionsPendingRevocation": [{"topicId": SHOWN_ID, "partitions": [1]}],
            },
        ),
    ),
    (
        ConsumerGroupRegularExpressionKey(group_id="k", regular_expression="o.*"),
        ConsumerGroupRegularExpressionValue(topics=("orders",), version=42, timestamp=NOW_MS),
        {"groupId": "k", "regularExpression": "o.*"},
        (0, {"topics": ["orders"], "version": 42, "timestamp": NOW_MS}),
    ),
]


def written(directory: Path, topic: str, records: Sequence[tuple[bytes, bytes | None]], **batch: Any) -> str:
    """Writes the records with our storage. Returns the path of the segment."""
    log = Log.open(
        RealDisk(),
        str(directory / f"{topic}-0"),
        TopicPartition(topic, 0),
        LogConfig(),
        clean_shutdown=False,
        now_ms=NOW_MS,
    )
    data = build_batch(
        [Record(offset, NOW_MS, key, value) for offset, (key, value) in enumerate(records)],
        leader_epoch=0,
        **batch,
    )
    log.append([(read_header(data), [data])], NOW_MS)
    log.close(clean=True)
    return str(directory / f"{topic}-0" / f"{0:020}.log")


def dumped(path: str, decoder: str) -> list[tuple[str, str]]:
    """Key and payload of each record, as Kafka's tool shows them."""
    libs = ensure_jars()
    assert libs is not None
    command = java_command(libs, "org.apache.kafka.tools.DumpLogSegments", decoder, "--files", path)
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr + result.stdout
    lines = [line for line in result.stdout.splitlines() if line.startswith("| offset:")]
    shown = (line.partition(" key: ")[2].partition(" payload: ") for line in lines)
    return [(key, payload) for key, _, payload in shown]


def test_kafka_reads_every_record_of_groups(tmp_path: Path) -> None:
    records = [
        (group_codec.encode_key(key), None if value is None else group_codec.encode_value(value))
        for key, value, _, _ in GROUP_RECORDS
    ]
    shown = dumped(written(tmp_path, "__consumer_offsets", records), "--offsets-decoder")
    assert len(shown) == len(GROUP_RECORDS)
    for (key, payload), (written_key, _, expected_key, expected) in zip(shown, GROUP_RECORDS, strict=True):
        assert json.loads(key) == {"type": str(written_key.__api_key__), "data": expected_key}
        if expected is None:
            assert payload == "<DELETE>"
        else:
            version, data = expected
            assert json.loads(payload) == {"version": str(version), "data": data}


def test_kafka_reads_the_records_of_transactions(tmp_path: Path) -> None:
    value = TransactionLogValue(
        producer_id=1,
        previous_producer_id=5,
        next_producer_id=6,
        producer_epoch=2,
        next_producer_epoch=3,
        transaction_timeout_ms=60_000,
        transaction_status=1,
        transaction_partitions=(TransactionPartitions(topic="orders", partition_ids=(0, 2)),),
        transaction_last_update_timestamp_ms=NOW_MS,
        transaction_start_timestamp_ms=NOW_MS - 1,
        client_transaction_version=2,
    )
    key = transaction_codec.encode_key(TransactionLogKey(transactional_id="t"))
    records = [(key, transaction_codec.encode_value(value)), (key, None)]
    shown = dumped(written(tmp_path, "__transaction_state", records), "--transaction-log-decoder")
    assert json.loads(shown[0][0]) == {"type": "0", "data": {"transactionalId": "t"}}
    assert json.loads(shown[0][1]) == {
        "version": "1",
        "data": {
            "producerId": 1,
            "previousProducerId": 5,
            "nextProducerId": 6,
            "producerEpoch": 2,
            "nextProducerEpoch": 3,
            "transactionTimeoutMs": 60_000,
            "transactionStatus": 1,
            "transactionPartitions": [{"topic": "orders", "partitionIds": [0, 2]}],
            "transactionLastUpdateTimestampMs": NOW_MS,
            "transactionStartTimestampMs": NOW_MS - 1,
            "clientTransactionVersion": 2,
        },
    }
    assert shown[1][1] == "<DELETE>"
