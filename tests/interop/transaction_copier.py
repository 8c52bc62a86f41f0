"""A consume-transform-produce loop as a process of its own, to be killed and started again.

It copies each record to the same partition of another topic, records and offsets in one transaction, and prints one
JSON event a line: assigned, committed (how many records), aborted (why), closed. SIGTERM ends it after the
transaction that it is in, and the end of its parent ends it wherever it is.
"""

import json
import os
import signal
import sys
import threading
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

RECORDS_A_TRANSACTION = 20
TIMEOUT_S = 30.0


class Copier:
    def __init__(self, settings: dict[str, Any]) -> None:
        self._source, self._target = settings["source"], settings["target"]
        self._consumer = Consumer(settings["consumer"])
        self._producer = Producer(settings["producer"])
        self._is_running = True

    def run(self) -> None:
        signal.signal(signal.SIGTERM, self._stop)
        self._producer.init_transactions(TIMEOUT_S)
        self._consumer.subscribe([self._source], on_assign=self._on_assign)
        while self._is_running:
            messages = self._consumer.consume(RECORDS_A_TRANSACTION, timeout=0.1)
            # The client reconnects by itself, but reports the error as well.
            records = [message for message in messages if message.error() is None]
            if records:
                self._copy(records)
        self._consumer.close()
        emit("closed")

    def _copy(self, records: list[Any]) -> None:
        self._producer.begin_transaction()
        positions = {record.partition(): record.offset() + 1 for record in records}
        offsets = [TopicPartition(self._source, partition, offset) for partition, offset in positions.items()]
        try:
            for record in records:
                self._producer.produce(self._target, record.value(), partition=record.partition())
            self._producer.send_offsets_to_transaction(
                offsets, self._consumer.consumer_group_metadata(), TIMEOUT_S
            )
            self._finish(self._producer.commit_transaction)
        except KafkaException as failed:
            if failed.args[0].fatal():
                raise
            self._finish(self._producer.abort_transaction)
            emit("aborted", why=str(failed.args[0]))
            self._rewind()
        else:
            emit("committed", records=len(records))

    def _finish(self, end: Any) -> None:
        """The broker comes back: the outcome is unknown until it has responded."""
        while True:
            try:
                end(TIMEOUT_S)
                return
            except KafkaException as failed:
                if not failed.args[0].retriable():
                    raise

    def _rewind(self) -> None:
        """Reads again what the aborted transaction had read."""
        while True:
            try:
                positions = self._consumer.committed(self._consumer.assignment(), TIMEOUT_S)
                if any(found.error is not None for found in positions):
                    continue  # unknown, which is not the same as none
                for found in positions:
                    found.offset = found.offset if found.offset >= 0 else OFFSET_BEGINNING
                    self._consumer.seek(found)
                return
            except KafkaException as failed:
                if failed.args[0].code() not in (KafkaError._TRANSPORT, KafkaError._TIMED_OUT):
                    raise

    def _on_assign(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        emit("assigned", partitions=[found.partition for found in partitions])

    def _stop(self, *_: object) -> None:
        self._is_running = False


def end_with_parent() -> None:
    def wait_for_it() -> None:
        while os.read(sys.stdin.fileno(), 1):
            pass
        os._exit(1)

    threading.Thread(target=wait_for_it, daemon=True).start()


def emit(event: str, **fields: object) -> None:
    print(json.dumps({"event": event, **fields}), flush=True)


if __name__ == "__main__":
    end_with_parent()
    Copier(json.loads(sys.argv[1])).run()
