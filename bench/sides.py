"""The two sides of a benchmark, Ottla and Apache Kafka, and what a scenario can do with each."""

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from confluent_kafka.admin import AdminClient, NewTopic
from tests.interop.brokers import RunningBroker, run_kafka, run_ottla

from bench.client import end_offsets
from bench.nodes import OTTLA, RunningCluster, run_cluster

ROOT = Path(__file__).parents[1]
# Files of a deleted topic are removed at once, so that they do not compete for the disk with the next run.
# Coordinators have their default settings, not those that make the tests quick.
SETTINGS = {
    "log.segment.delete.delay.ms": "0",
    "group.initial.rebalance.delay.ms": "3000",
    "offsets.topic.num.partitions": "50",
    "transaction.state.log.num.partitions": "50",
}
CLIENT_TIMEOUT_S = 900
ADMIN_TIMEOUT_S = 120


class Reachable(Protocol):
    """A broker or a cluster."""

    @property
    def bootstrap(self) -> str: ...


@dataclass
class Side:
    """One of the two brokers. `running` is shared and warm; `fresh` starts a new one for a scenario of its own.

    `cluster` starts three new nodes.
    """

    name: str
    scratch: Path
    stack: contextlib.ExitStack
    client_cores: list[float] = field(default_factory=list)
    _running: RunningBroker | None = None
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def running(self) -> RunningBroker:
        if self._running is None:
            self._running = self.stack.enter_context(self.fresh())
            self._warm_up(self._running)
        return self._running

    @contextlib.contextmanager
    def fresh(self, *options: str, settings: Mapping[str, str] | None = None) -> Iterator[RunningBroker]:
        """`options` are of `ottla serve`; Apache Kafka has none. `settings` are configs beside SETTINGS."""
        data_dir = self.scratch / f"{self.name}-{next(self._numbers)}" / "data"
        configs = SETTINGS | dict(settings or {})
        start = (
            run_kafka(data_dir, set=configs, as_shipped=True)
            if self.name == "kafka"
            else run_ottla(data_dir, set=configs, command=[str(OTTLA)], options=options)
        )
        try:
            with start as broker:
                yield broker
        finally:
            shutil.rmtree(data_dir.parent, ignore_errors=True)

    @contextlib.contextmanager
    def cluster(self) -> Iterator[RunningCluster]:
        folder = self.scratch / f"{self.name}-cluster-{next(self._numbers)}"
        try:
            with run_cluster(self.name, folder) as cluster:
                yield cluster
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @contextlib.contextmanager
    def topic(self, broker: RunningBroker, partitions: int = 1) -> Iterator[str]:
        """A topic for one run, deleted after it so that the disk does not fill.

        The disk is synced first: data that an earlier run left to write would slow this one, on either side.
        """
        os.sync()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        name = f"bench-{next(self._numbers)}"
        made = admin.create_topics([NewTopic(name, partitions, 1)], operation_timeout=ADMIN_TIMEOUT_S)
        made[name].result(ADMIN_TIMEOUT_S)
        end_offsets(broker.bootstrap, name, partitions)
        yield name
        admin.delete_topics([name])[name].result(ADMIN_TIMEOUT_S)

    def client(self, role: str, broker: Reachable, topic: str, **spec: object) -> dict[str, float]:
        """Runs a client process and returns what it measured."""
        asked = json.dumps({"bootstrap": broker.bootstrap, "topic": topic, "partitions": 1, **spec})
        done = subprocess.run(
            [sys.executable, "-m", "bench.client", role, asked],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=CLIENT_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"the {role} client failed on {self.name}: {done.stderr.strip()[-800:]}")
        result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        if "seconds" in result:
            self.client_cores.append(result["cpu_seconds"] / result["seconds"])
        return result

    def _warm_up(self, broker: RunningBroker) -> None:
        """The JVM compiles hot code at run time: the first records of a benchmark must not pay for that."""
        with self.topic(broker) as topic:
            self.client("produce", broker, topic, records=100_000, value_bytes=1_000)
            self.client("consume", broker, topic, records=100_000)
            small = {"records": 30_000, "value_bytes": 100, "one_record": True, "expected_end": 130_000}
            self.client("produce", broker, topic, **small)
