"""Gauges of one broker: connections, memory of requests, purgatory, data directories, log cleaner."""

from collections import Counter
from collections.abc import Callable, Mapping

from ottla.broker.delayed_delete_records import DelayedDeleteRecords
from ottla.broker.delayed_fetch import DelayedFetch, DelayedSessionFetch
from ottla.broker.delayed_operations import DelayedOperations
from ottla.broker.delayed_produce import DelayedProduce
from ottla.broker.log_cleaner import LogCleaner
from ottla.broker.server import Server
from ottla.broker.services import BrokerServices
from ottla.core.transactions.states import TransactionState
from ottla.metrics import Collector, Family, GaugeCollector, Kind, labels

_SOCKETS = "kafka_server_socket_server_metrics_"
_MEMORY = "kafka_network_socketserver_memorypool"
_PURGATORY = "kafka_server_delayedoperationpurgatory_purgatorysize"
_CLEANER = "kafka_log_logcleanermanager_"

FAMILIES = (
    Family(f"{_SOCKETS}connection_count", Kind.GAUGE, "Open connections.", ("listener",)),
    Family(
        f"{_SOCKETS}connection_creation_total", Kind.COUNTER, "Connections that were accepted.", ("listener",)
    ),
    Family(f"{_SOCKETS}incoming_byte_total", Kind.COUNTER, "Bytes that clients have sent.", ("listener",)),
    Family(f"{_SOCKETS}outgoing_byte_total", Kind.COUNTER, "Bytes that clients were sent.", ("listener",)),
    Family(f"{_MEMORY}used", Kind.GAUGE, "Bytes of requests in memory."),
    Family(
        f"{_MEMORY}available", Kind.GAUGE, "Bytes that requests may still use (queued.max.request.bytes)."
    ),
    Family(
        _PURGATORY,
        Kind.GAUGE,
        "Requests that wait in the purgatory, for Produce, Fetch and DeleteRecords.",
        ("delayedOperation",),
    ),
    Family(
        "ottla_purgatory_operations",
        Kind.GAUGE,
        "All operations in the purgatory, also those of coordinators, such as session timeouts.",
    ),
    Family("ottla_timing_wheel_next_seconds", Kind.GAUGE, "Seconds until the timing wheel has work to do."),
    Family("ottla_worker_queue", Kind.GAUGE, "Work that waits for one of the broker's threads."),
    Family(
        "ottla_page_cache_misses_total",
        Kind.COUNTER,
        "Reads for fetch requests of bytes that were not in the page cache. A thread reads them first.",
    ),
    Family(
        "kafka_coordinator_group_groupmetadatamanager_numgroups", Kind.GAUGE, "Groups of this coordinator."
    ),
    Family(
        "ottla_transactional_ids",
        Kind.GAUGE,
        "Transactional ids of this coordinator, by the state of their transaction.",
        ("state",),
    ),
    Family("ottla_fetch_sessions", Kind.GAUGE, "Fetch sessions in the cache."),
    Family(
        "kafka_server_brokermetadatametrics_last_applied_record_offset",
        Kind.GAUGE,
        "The offset of the last metadata record that this broker has applied.",
    ),
    Family("kafka_log_logmanager_offlinelogdirectorycount", Kind.GAUGE, "Data directories that are offline."),
    Family(f"{_CLEANER}uncleanable_partitions_count", Kind.GAUGE, "Partitions that cannot be compacted."),
    Family(
        f"{_CLEANER}max_dirty_percent", Kind.GAUGE, "The largest dirty part of a compacted log, in percent."
    ),
    Family(
        f"{_CLEANER}time_since_last_run_ms", Kind.GAUGE, "Milliseconds since the log cleaner last chose logs."
    ),
    Family("ottla_log_cleaner_running", Kind.GAUGE, "Logs that are being compacted."),
    Family(
        "ottla_log_cleaner_uncleanable",
        Kind.GAUGE,
        "1 for each partition that cannot be compacted, with the reason.",
        ("topic", "partition", "reason"),
    ),
)


def broker_collector(services: BrokerServices, server: Server, cleaner: LogCleaner) -> Collector:
    return GaugeCollector(FAMILIES, _reader(services, server, cleaner))


def _reader(
    services: BrokerServices, server: Server, cleaner: LogCleaner
) -> Callable[[], Mapping[str, float]]:
    def read() -> dict[str, float]:
        sessions = services.fetch_sessions.created
        return {
            **_connections(server),
            **_purgatory(services.delayed_operations),
            "ottla_worker_queue": services.env.threads.queued,
            "ottla_page_cache_misses_total": services.partitions.counters.cold_reads,
            **_coordinators(services),
            "ottla_fetch_sessions": 0 if sessions is None else len(sessions),
            "kafka_server_brokermetadatametrics_last_applied_record_offset": services.metadata.image.offset,
            "kafka_log_logmanager_offlinelogdirectorycount": len(services.log_dirs.offline),
            **_cleaner(cleaner, services.env.clock.now_ms()),
        }

    return read


def _connections(server: Server) -> dict[str, float]:
    values: dict[str, float] = {}
    for name, connections, accepted, received, sent in server.traffic():
        labels_text = labels(listener=name)
        values[f"{_SOCKETS}connection_count{labels_text}"] = connections
        values[f"{_SOCKETS}connection_creation_total{labels_text}"] = accepted
        values[f"{_SOCKETS}incoming_byte_total{labels_text}"] = received
        values[f"{_SOCKETS}outgoing_byte_total{labels_text}"] = sent
    if server.memory is not None:
        values[f"{_MEMORY}used"] = server.memory.used_bytes
        values[f"{_MEMORY}available"] = max(0, server.memory.limit_bytes - server.memory.used_bytes)
    return values


def _purgatory(operations: DelayedOperations) -> dict[str, float]:
    sizes = Counter(map(type, operations.waiting()))
    next_ms = operations.next_deadline_in_ms()
    by_name = {
        "Produce": sizes[DelayedProduce],
        "Fetch": sizes[DelayedFetch] + sizes[DelayedSessionFetch],
        "DeleteRecords": sizes[DelayedDeleteRecords],
    }
    return {
        **{_PURGATORY + labels(delayedOperation=name): size for name, size in by_name.items()},
        "ottla_purgatory_operations": len(operations),
        **({} if next_ms is None else {"ottla_timing_wheel_next_seconds": next_ms / 1000}),
    }


def _coordinators(services: BrokerServices) -> dict[str, float]:
    """Coordinators are loaded when they have something to do."""
    groups, transactions = services.groups.created, services.transactions.created
    values: dict[str, float] = {
        "kafka_coordinator_group_groupmetadatamanager_numgroups": (
            0 if groups is None else sum(len(runtime.shard.state.groups) for runtime in groups.runtimes)
        )
    }
    if transactions is not None:
        states: Counter[TransactionState] = Counter()
        for runtime in transactions.runtimes:
            states.update(runtime.shard.state_counts())
        values |= {
            "ottla_transactional_ids" + labels(state=state.name.lower()): count
            for state, count in states.items()
        }
    return values


def _cleaner(cleaner: LogCleaner, now_ms: int) -> dict[str, float]:
    reasons = {
        "ottla_log_cleaner_uncleanable"
        + labels(topic=partition.topic, partition=partition.partition, reason=found.reason): 1
        for partition, found in cleaner.uncleanable.items()
    }
    return {
        f"{_CLEANER}uncleanable_partitions_count": len(cleaner.uncleanable),
        f"{_CLEANER}max_dirty_percent": int(100 * cleaner.max_dirty_ratio),
        f"{_CLEANER}time_since_last_run_ms": max(0, now_ms - cleaner.last_round_ms),
        "ottla_log_cleaner_running": len(cleaner.in_progress),
        **reasons,
    }
