"""A client that sends at a fixed rate while something happens to the cluster."""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from bench.client import end_offsets
from bench.nodes import RunningCluster
from bench.sides import ROOT

VALUE_BYTES = 1_000


@contextlib.contextmanager
def steady_load(
    cluster: RunningCluster, topic: str, partitions: int, megabytes_a_second: int
) -> Iterator[None]:
    """Records of 1 KB, acks=all. The rate falls if the cluster cannot keep up."""
    spec = {"bootstrap": cluster.bootstrap, "topic": topic, "partitions": partitions}
    asked = json.dumps({**spec, "rate": megabytes_a_second * 1_000, "value_bytes": VALUE_BYTES})
    command = [sys.executable, "-m", "bench.client", "steady_load", asked]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as client:
        try:
            assert client.stdout is not None
            client.stdout.readline()
            yield
            if client.poll() is not None:
                raise RuntimeError(f"the load ended early, with code {client.returncode}")
        finally:
            client.kill()


@dataclass(frozen=True)
class Rate:
    """Megabytes a second that were acknowledged since `begin`."""

    cluster: RunningCluster
    topic: str
    partitions: int
    began: float
    records: int

    @classmethod
    def begin(cls, cluster: RunningCluster, topic: str, partitions: int) -> "Rate":
        records = sum(end_offsets(cluster.bootstrap, topic, partitions))
        return cls(cluster, topic, partitions, time.monotonic(), records)

    def read(self) -> float:
        now = Rate.begin(self.cluster, self.topic, self.partitions)
        return (now.records - self.records) * VALUE_BYTES / 1e6 / (now.began - self.began)
