"""Sends records to a topic and waits for their acknowledgements."""

from types import TracebackType
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from ottla.admin.cluster import Cluster, ClusterError
from ottla.admin.json_records import OutgoingRecord

_DELIVERY_TIMEOUT_MS = 30_000
_UNKNOWN_TOPIC_TIMEOUT_MS = 5_000
_POLL_S = 0.05


class RecordSender:
    """`with RecordSender(...) as sender`: leaving the block waits for every acknowledgement.

    The first record that is rejected raises ClusterError. Without idempotence, a lost response makes a duplicate, but
    librdkafka does not wait up to a second for a producer id.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        *,
        acks: str = "all",
        compression: str = "none",
        is_idempotent: bool = True,
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._error: KafkaError | None = None
        self.delivered = 0
        self._producer = Producer(
            cluster.client_config(
                acks=acks,
                enable_idempotence=is_idempotent and acks == "all",
                compression_type=compression,
                linger_ms=5,
                message_timeout_ms=_DELIVERY_TIMEOUT_MS,
                message_max_bytes=1_000_000_000,
                topic_metadata_propagation_max_ms=_UNKNOWN_TOPIC_TIMEOUT_MS,
            )
        )

    def send(self, record: OutgoingRecord) -> None:
        options: dict[str, Any] = {}
        if record.partition is not None:
            options["partition"] = record.partition
        if record.timestamp is not None:
            options["timestamp"] = record.timestamp
        while True:
            self._raise_error()
            try:
                self._producer.produce(
                    self._topic,
                    record.value,
                    record.key,
                    headers=record.headers or None,
                    on_delivery=self._on_delivery,
                    **options,
                )
                break
            except BufferError:
                self._producer.poll(_POLL_S)
            except KafkaException as error:
                raise self._cluster.error(f"Topic {self._topic}", error.args[0]) from None
        self._producer.poll(0)

    def poll(self, timeout_s: float) -> None:
        """Receives acknowledgements while there is nothing to send. Raises ClusterError."""
        self._producer.poll(timeout_s)
        self._raise_error()

    def finish(self) -> None:
        """Waits until every record is acknowledged. Raises ClusterError if one is not."""
        left = self._producer.flush(_DELIVERY_TIMEOUT_MS / 1000 + 5)
        self._raise_error()
        if left:
            raise ClusterError(f"Topic {self._topic}: {left} records are not acknowledged")

    def __enter__(self) -> "RecordSender":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.finish()
        elif kind is KeyboardInterrupt:
            self._producer.flush(5)

    def _on_delivery(self, error: KafkaError | None, message: Any) -> None:
        if error is None:
            self.delivered += 1
        elif self._error is None:
            self._error = error

    def _raise_error(self) -> None:
        if self._error is not None:
            delivered = f"{self.delivered} records were acknowledged before"
            raise self._cluster.error(f"Topic {self._topic} ({delivered})", self._error)
