"""A producer that runs while brokers come and go; every record that it sends must be acknowledged."""

import threading

from confluent_kafka import KafkaError, Message, Producer
from tests.interop.cluster_clients import PATIENCE
from tests.interop.librdkafka import flush
from tests.interop.local_clusters import wait_until


class Load:
    """An idempotent producer in a thread. It numbers the records over all partitions."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        config = {"bootstrap.servers": bootstrap, **PATIENCE, "linger.ms": 2, "enable.idempotence": True}
        self._producer = Producer(config)
        self._topic, self._partitions = topic, partitions
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.sent, self.acknowledged = 0, 0
        self.errors: list[KafkaError] = []

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Waits for the acknowledgement of everything sent."""
        self._stop.set()
        self._thread.join()

    def wait_for_more(self, records: int = 500) -> None:
        wanted = self.acknowledged + records
        wait_until(lambda: self.acknowledged > wanted, f"{records} more records are acknowledged")

    def _run(self) -> None:
        while not self._stop.wait(0.005):
            for partition in range(self._partitions):
                self._producer.produce(
                    self._topic, str(self.sent).encode(), partition=partition, on_delivery=self._delivered
                )
                self.sent += 1
            self._producer.poll(0)
        flush(self._producer)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.errors.append(error)
