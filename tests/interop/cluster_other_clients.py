"""Kafka's Java clients and kafka-python in a cluster whose nodes die: an idempotent producer, and a member of a group.

Both kinds are processes that print each event as a line of JSON: at which offset a record was acknowledged, and which
records the group has read. A record is a number.
"""

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.interop.clusters import Cluster
from tests.interop.kafka_jars import java_command
from tests.interop.kafka_python_tools import RATE
from tests.interop.librdkafka import TIMEOUT_S

KAFKA_PYTHON = (sys.executable, "-m", "tests.interop.kafka_python_tools")
# A paused node keeps its connections open: with the default of 30 s each request to it would take that long.
PRODUCER_CONFIG = {
    "request.timeout.ms": 3_000,
    "reconnect.backoff.max.ms": 200,
    "enable.idempotence": "true",
    "retries": 2**31 - 1,  # the tool's own default is to report every error
}
CONSUMER_CONFIG = {"request.timeout.ms": 5_000, "reconnect.backoff.max.ms": 200}

Event = dict[str, Any]


class Place(NamedTuple):
    partition: int
    offset: int


class OtherClients:
    """`acknowledged` has a place for each number, `read` all places at which the group has read the number."""

    def __init__(self, produce: Sequence[str], consume: Sequence[str], log: Path) -> None:
        self.acknowledged: dict[int, Place] = {}
        self.read: dict[int, set[Place]] = {}
        self.failures: list[str] = []
        self._log = log
        self._producer = _Tool(produce, self._produced, log)
        self._consumer = _Tool(consume, self._consumed, log)

    def wait_for_more(self, cluster: Cluster, records: int = 300) -> None:
        """Until both clients have made that much progress."""
        acknowledged, read = len(self.acknowledged) + records, len(self.read) + records
        cluster.wait_until(
            lambda: (
                bool(self.failures) or (len(self.acknowledged) >= acknowledged and len(self.read) >= read)
            ),
            f"{records} more records are acknowledged and read, see {self._log}",
        )
        assert not self.failures, self.failures[0]

    def stop_producing(self) -> None:
        """Returns when every record that was sent has been acknowledged or has failed."""
        self._producer.stop()

    def stop(self) -> None:
        self._producer.stop()
        self._consumer.stop()

    def _produced(self, event: Event) -> None:
        if event["name"] == "producer_send_success":
            self.acknowledged[int(event["value"])] = _place(event)
        elif event["name"] == "producer_send_error":
            self.failures.append(str(event))

    def _consumed(self, event: Event) -> None:
        if event["name"] == "record_data":
            self.read.setdefault(int(event["value"]), set()).add(_place(event))


def kafka_python_clients(cluster: Cluster, topic: str, group: str, folder: Path) -> OtherClients:
    produce = (*KAFKA_PYTHON, "produce", cluster.bootstrap, topic)
    consume = (*KAFKA_PYTHON, "consume", cluster.bootstrap, topic, group)
    return OtherClients(produce, consume, folder / "clients.log")


def java_clients(cluster: Cluster, topic: str, group: str, folder: Path, libs: Path) -> OtherClients:
    """VerifiableProducer and VerifiableConsumer."""
    where = ("--bootstrap-server", cluster.bootstrap, "--topic", topic)
    slowly = ("--throughput", str(RATE), *_config(folder / "producer", PRODUCER_CONFIG))
    all_of_it = ("--group-id", group, "--verbose", *_config(folder / "consumer", CONSUMER_CONFIG))
    return OtherClients(
        java_command(libs, "org.apache.kafka.tools.VerifiableProducer", *where, *slowly),
        java_command(libs, "org.apache.kafka.tools.VerifiableConsumer", *where, *all_of_it),
        folder / "clients.log",
    )


class _Tool:
    """A process whose events are used in a thread. At a SIGTERM it closes its client and prints the last events."""

    def __init__(self, command: Sequence[str], use: Callable[[Event], None], log: Path) -> None:
        with log.open("a") as errors:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        self._use = use
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(2 * TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise
        finally:
            self._thread.join()

    def _follow(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                # The Java tools also print lines that are no events when they are stopped.
                with contextlib.suppress(json.JSONDecodeError):
                    self._use(json.loads(line))


def _place(event: Event) -> Place:
    return Place(int(event["partition"]), int(event["offset"]))


def _config(path: Path, values: Mapping[str, object]) -> tuple[str, str]:
    path.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
    return "--command-config", str(path)
