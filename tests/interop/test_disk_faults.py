"""A full disk and a process without descriptors, with real processes, file systems and clients."""

import contextlib
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from tests.interop.brokers import RunningBroker, run_ottla
from tests.interop.librdkafka import create_topic, produce_values, read_records, wait_until

VALUE = bytes(200_000)


def fill_up(broker: RunningBroker, topic: str, partition: int = 0) -> None:
    """Writes until the broker rejects a record or stops."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "message.timeout.ms": 2000, "linger.ms": 0})
    failed: list[KafkaError] = []

    def note(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(error)

    deadline = time.monotonic() + 60
    while not failed and broker.is_alive():
        assert time.monotonic() < deadline, "the disk should be full by now"
        with contextlib.suppress(BufferError, KafkaException):
            producer.produce(topic, VALUE, partition=partition, on_delivery=note)
        producer.poll(0.01)
    producer.purge()


def test_a_broker_whose_only_disk_is_full_stops_with_the_reason(small_disk: Callable[[str], Path]) -> None:
    disk = small_disk("disk")
    with run_ottla(disk) as broker:
        topic = create_topic(broker.bootstrap, "journal")
        fill_up(broker, topic)
        assert broker.process is not None
        assert broker.process.wait(30) == 1
        log = broker.log_text()
        assert "ottla serve: the broker stops: every data directory is offline" in log
        assert "No space left on device" in log
        assert "Fix the disk and start the broker again" in log
        assert "Traceback" not in log


def test_a_broker_with_a_full_disk_and_another_continues_with_the_other(
    small_disk: Callable[[str], Path], tmp_path: Path
) -> None:
    full, sound = small_disk("full"), tmp_path / "sound"
    serve = f'exec "{sys.executable}" -m ottla.cli.main "$@" --data "{sound},{full}/data"'
    with run_ottla(tmp_path / "unused", command=("sh", "-c", serve, "sh")) as broker:
        topic = create_topic(broker.bootstrap, "journal", 2)
        (partition,) = [n for n in range(2) if (full / "data" / f"{topic}-{n}").exists()]
        fill_up(broker, topic, partition)
        wait_until(
            lambda: f"the data directory {full}/data goes offline" in broker.log_text(), "it is offline"
        )
        create_topic(broker.bootstrap, "later", 3)
        assert sorted(path.name for path in sound.glob("later-*")) == ["later-0", "later-1", "later-2"]
        produce_values(broker.bootstrap, "later", [b"a"])
        assert broker.is_alive()


class Sender:
    """A producer to partition 0 that keeps the result of each record."""

    def __init__(self, bootstrap: str, topic: str, **config: object) -> None:
        settings = {name.replace("_", "."): value for name, value in config.items()}
        self.outcomes: list[KafkaError | None] = []
        self._producer = Producer({"bootstrap.servers": bootstrap, "batch.num.messages": 1, **settings})
        self._topic = topic

    def send(self, count: int) -> None:
        for _ in range(count):
            self._producer.produce(
                self._topic, VALUE, partition=0, on_delivery=lambda error, _: self.outcomes.append(error)
            )

    def wait(self) -> None:
        assert self._producer.flush(60) == 0


def test_a_broker_without_descriptors_rejects_requests_that_need_one_and_recovers(tmp_path: Path) -> None:
    with run_ottla(tmp_path / "data", set={"log.segment.bytes": "1048576"}) as broker:
        topic = create_topic(broker.bootstrap, "journal")
        patient = Sender(broker.bootstrap, topic, enable_idempotence=True, retry_backoff_max_ms=200)
        impatient = Sender(broker.bootstrap, topic, retries=0)
        for sender in (patient, impatient):  # they are connected from here on
            sender.send(1)
            sender.wait()
        with without_descriptors(broker.pid):
            patient.send(12)
            impatient.send(12)  # more than a segment
            impatient.wait()
            assert broker.is_alive()
        patient.wait()
        assert patient.outcomes == [None] * 13
        refused = [error for error in impatient.outcomes if error is not None]
        assert {error.code() for error in refused} == {KafkaError.KAFKA_STORAGE_ERROR}
        written = 13 + 13 - len(refused)
        assert "offline" not in broker.log_text()
        assert len(read_records(broker.bootstrap, topic, written)) == written
        broker.kill()
        broker.start()
        assert len(read_records(broker.bootstrap, topic, written)) == written


@contextlib.contextmanager
def without_descriptors(pid: int) -> Iterator[None]:
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir(f"/proc/{pid}/fd"))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (highest + 1, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
