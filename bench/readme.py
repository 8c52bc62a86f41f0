"""`python -m bench.readme RESULTS.json...` prints README's tables from the results of one whole run.

The part `cluster` may have results of its own: name both files. Its table is left out if it has no results.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench.report import number


class Row(NamedTuple):
    """`unit` is shown after the values; `less` after the ratio of a metric that should be small."""

    text: str
    scenario: str
    metric: str
    unit: str = ""
    less: str = ""


ROWS = (
    Row("produce 1 KB, one partition", "1kb", "produce", " MB/s"),
    Row("consume 1 KB, one partition", "1kb", "consume", " MB/s"),
    Row("broker CPU for 1 GB of 1 KB in and out", "1kb", "broker CPU", " s", " less"),
    Row("produce 1 KB, 200 partitions", "200-partitions", "produce", " MB/s"),
    Row("consume 1 KB, 200 partitions", "200-partitions", "consume", " MB/s"),
    Row("produce 100 B (the client is at its limit)", "100b", "produce", " MB/s"),
    Row("broker CPU for 1 GB of 100 B in and out", "100b", "broker CPU", " s", " less"),
    Row("requests with one record a second", "one-record", "requests"),
    Row("end to end, p50", "latency", "p50", " ms"),
    Row("end to end, p99", "latency", "p99", " ms"),
    Row("time to ready", "ready", "start", " s"),
    Row("memory, idle", "memory", "idle", " MB", " less"),
    Row("memory, under load", "memory", "most under load", " MB", " less"),
    Row("open a log of 10 GB after `kill -9`", "log-large", "open after kill -9", " s"),
    Row("compaction, 1,000 B, few keys", "compaction", "1000 B, few keys", " MB/s"),
    Row("compaction, 1,000 B, many keys", "compaction", "1000 B, many keys", " MB/s"),
    Row("compaction, 100 B, few keys", "compaction", "100 B, few keys", " MB/s"),
    Row("compaction, 100 B, many keys", "compaction", "100 B, many keys", " MB/s"),
    Row(
        "p99 of producing beside compaction, over that without",
        "compaction beside traffic",
        "p99 with / without",
    ),
    Row("KIP-848 group of 20 members ready", "group-ready-848", "of 20", " s"),
    Row("a member joins a KIP-848 group", "group-join", "KIP-848", " s"),
    Row("offset commits a second", "offset-commits", "commits"),
    Row("transactions of one record a second", "transactions-1", "transactions"),
    Row("transactions of 1,000 records a second", "transactions-1000", "transactions"),
    Row("1 KB in transactions", "transactions-1kb", "produce", " MB/s"),
    Row("rows a second into Spark, ours / Spark's own connector", "spark-read", "rows"),
    Row("the same as a stream", "spark-stream", "rows"),
    Row("rows a second out of Spark, ours exactly once", "spark-write", "rows"),
    Row("records a second through the whole pipeline", "pipeline", "records"),
)
CLUSTER_ROWS = (
    Row("three nodes ready from cold", "cluster-ready", "start", " s"),
    Row("create 2,000 partitions, replication 3", "cluster-2000x3", "create", " s"),
    Row("memory of a node with them", "cluster-2000x3", "memory", " MB", " less"),
    Row("CPU of all nodes with them, idle", "cluster-2000x3", "idle CPU", " %", " less"),
    Row("produce 1 KB, replication 3, acks=all", "cluster-traffic", "produce 1 KB", " MB/s"),
    Row("CPU of all nodes for 1 GB of it", "cluster-traffic", "CPU, 1 KB", " s", " less"),
    Row("end to end, replication 3, p99", "cluster-traffic", "end to end, p99", " ms"),
    Row("without an acknowledgement after `kill -9` of a leader", "cluster-failover", "kill -9", " s"),
)
CLUSTER_HEADING = "Three nodes on the same machine, beside three of Apache Kafka (heap of 768 MB each):"

Results = dict[tuple[str, str], Any]


def tables(files: Sequence[Path]) -> str:
    found: Results = {
        (result["scenario"], result["metric"]): result
        for file in files
        for result in json.loads(file.read_text())["results"]
    }
    parts = [table(ROWS, found)]
    if any((row.scenario, row.metric) in found for row in CLUSTER_ROWS):
        parts += [CLUSTER_HEADING, table(CLUSTER_ROWS, found)]
    return "\n\n".join(parts)


def table(rows: Sequence[Row], found: Results) -> str:
    lines = ["| | Ottla | Kafka | |", "| --- | --- | --- | --- |"]
    for row in rows:
        result = found[row.scenario, row.metric]
        if result["ratio"] is None:
            raise SystemExit(f"{row.scenario}, {row.metric}: not measured on both sides. Run it again")
        ours, kafka = (number(median(result["values"][side])) for side in ("ottla", "kafka"))
        ratio = f"{result['ratio']:.1f}x{row.less}"
        lines.append(f"| {row.text} | {ours}{row.unit} | {kafka}{row.unit} | {ratio} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(tables([Path(name) for name in sys.argv[1:]]))
