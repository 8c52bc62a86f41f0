"""The dead-letter topic: records on which the handler failed, with headers for their origin and the error."""

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from ottla.consumer.errors import DeadLetterError, describe_error
from ottla.consumer.record import Record
from ottla.consumer.settings import connection_config

# Added behind the record's own headers, in UTF-8. A record that fails twice has both sets, the newer one last.
_HEADER_PREFIX = "dead-letter."
_ERROR_TEXT_MAX = 4_096
_DELIVERY_TIMEOUT_MS = 30_000
_POLL_S = 0.02


class DeadLetters:
    """Safe to use from several threads."""

    def __init__(self, topic: str, config: Mapping[str, Any]) -> None:
        self._topic = topic
        self._group = str(config["group.id"])
        self._producer = Producer(
            {
                **connection_config(config),
                "enable.idempotence": True,
                "linger.ms": 0,
                "delivery.timeout.ms": _DELIVERY_TIMEOUT_MS,
            }
        )

    def send(self, record: Record, error: BaseException, attempts: int) -> None:
        """Returns when the cluster has acknowledged the record. Raises DeadLetterError if it does not."""
        outcome: list[KafkaError | None] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            outcome.append(error)

        headers: list[tuple[str, str | bytes | None]] = [
            *record.headers,
            *self._headers(record, error, attempts),
        ]
        try:
            self._producer.produce(
                self._topic, record.value, record.key, headers=headers, on_delivery=delivered
            )
        except (BufferError, KafkaException) as rejection:
            raise DeadLetterError(record, self._topic, rejection) from error
        # A poll delivers the outcomes of all threads: another thread may have received ours.
        while not outcome:
            self._producer.poll(_POLL_S)
        if outcome[0] is not None:
            raise DeadLetterError(record, self._topic, outcome[0].str()) from error

    def _headers(self, record: Record, error: BaseException, attempts: int) -> list[tuple[str, bytes]]:
        kind, text = describe_error(error)
        values = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": "" if record.timestamp_ms is None else record.timestamp_ms,
            "group": self._group,
            "attempts": attempts,
            "error.type": kind,
            "error.text": text[:_ERROR_TEXT_MAX],
        }
        return [
            (_HEADER_PREFIX + name, str(value).encode(errors="replace")) for name, value in values.items()
        ]
