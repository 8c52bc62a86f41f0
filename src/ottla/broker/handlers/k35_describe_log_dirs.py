"""DescribeLogDirs, versions 1 to 5 (KIP-113). v2 flexible; v3 a top-level error; v4 space (KIP-827).
v5 cordoned directories (KIP-1066).
"""

from datetime import timedelta

from kio.schema.describe_log_dirs.v5.request import DescribeLogDirsRequest
from kio.schema.describe_log_dirs.v5.response import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

from ottla.broker.dispatch import RequestContext
from ottla.broker.hosted_partition import HostedPartition
from ottla.broker.services import BrokerServices
from ottla.model.errors import ErrorCode
from ottla.storage.replica_move import ReplicaMove


def handle(
    services: BrokerServices, context: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    return DescribeLogDirsResponse(
        throttle_time=timedelta(),
        error_code=ErrorCode.none,
        results=tuple(
            _describe(services, path, wanted)
            for path in [*services.log_dirs.paths, *services.log_dirs.offline]
        ),
    )


def _describe(
    services: BrokerServices, path: str, wanted: set[tuple[str, int]] | None
) -> DescribeLogDirsResult:
    is_cordoned = path in services.log_dirs.cordoned
    offline = DescribeLogDirsResult(
        error_code=ErrorCode.kafka_storage_error, log_dir=path, topics=(), is_cordoned=is_cordoned
    )
    if path in services.log_dirs.offline:
        return offline
    try:
        total, usable = services.env.disk.space(path)
    except OSError:
        return offline
    by_topic: dict[str, list[DescribeLogDirsPartition]] = {}
    for hosted in services.partitions:
        if wanted is None or hosted.topic_partition in wanted:
            here = by_topic.setdefault(hosted.topic_partition.topic, [])
            if services.log_dirs.directory_of(hosted.topic_partition) == path:
                here.append(_replica(hosted))
            move = services.log_dirs.moves.get(hosted.topic_partition)
            if move is not None and move.path == path:
                here.append(_future_replica(hosted, move))
    return DescribeLogDirsResult(
        error_code=ErrorCode.none,
        log_dir=path,
        topics=tuple(
            DescribeLogDirsTopic(name=topic, partitions=tuple(partitions))
            for topic, partitions in by_topic.items()
            if partitions
        ),
        total_bytes=total,
        usable_bytes=usable,
        is_cordoned=is_cordoned,
    )


def _replica(hosted: HostedPartition) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=hosted.topic_partition.partition,
        partition_size=hosted.log.size_bytes,
        offset_lag=max(0, hosted.role.high_watermark - hosted.log.log_end_offset),
        is_future_key=False,
    )


def _future_replica(hosted: HostedPartition, move: ReplicaMove) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=hosted.topic_partition.partition,
        partition_size=move.bytes_copied,
        offset_lag=hosted.log.log_end_offset - move.end_offset,
        is_future_key=True,
    )
