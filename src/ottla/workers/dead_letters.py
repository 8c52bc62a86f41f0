"""The dead-letter topic: records that no handler could take, with where they came from and why they are there."""

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from ottla.workers.errors import DeadLetterError, described
from ottla.workers.record import Record
from ottla.workers.settings import connection_config

# Headers are added behind the record's own, in UTF-8: a record that dies twice tells both, the last one last.
HEADER = "dead-letter."
ERROR_TEXT_MAX = 4_096
DELIVERY_TIMEOUT_MS = 30_000
POLL_S = 0.02


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
                "delivery.timeout.ms": DELIVERY_TIMEOUT_MS,
            }
        )

    def send(self, record: Record, error: BaseException, attempts: int) -> None:
        """Returns when the cluster has the record; raises DeadLetterError where it will not have it."""
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
        except (BufferError, KafkaException) as refusal:
            raise DeadLetterError(record, self._topic, refusal) from error
        # Whichever thread polls is given the outcomes of all: it may be another's turn to see ours.
        while not outcome:
            self._producer.poll(POLL_S)
        if outcome[0] is not None:
            raise DeadLetterError(record, self._topic, outcome[0].str()) from error

    def _headers(self, record: Record, error: BaseException, attempts: int) -> list[tuple[str, bytes]]:
        kind, text = described(error)
        told = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": "" if record.timestamp_ms is None else record.timestamp_ms,
            "group": self._group,
            "attempts": attempts,
            "error.type": kind,
            "error.text": text[:ERROR_TEXT_MAX],
        }
        return [(HEADER + name, str(value).encode(errors="replace")) for name, value in told.items()]
