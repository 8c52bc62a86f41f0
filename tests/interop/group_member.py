"""A member of a group as a separate process, which can be killed, paused and continued.

It prints one JSON event a line (assigned, revoked, lost, record, committed, error, closed) and obeys JSON commands on
stdin. Offsets are committed after the records are printed, and before a partition is given away.
"""

import json
import queue
import sys
import threading
import time
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

RECORDS_A_COMMIT = 20


class GroupMember:
    def __init__(self, config: dict[str, Any], topics: list[str], commits: bool) -> None:
        self._consumer = Consumer(config)
        self._topics = topics
        self._commits = commits
        self._uncommitted = 0
        self._is_polling = True
        self._commands: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def run(self) -> None:
        threading.Thread(target=self._read_commands, daemon=True).start()
        self._subscribe(self._topics)
        while self._obey_commands():
            if self._is_polling:
                self._poll()
            else:
                time.sleep(0.01)
        self._consumer.close()
        emit("closed")

    def _read_commands(self) -> None:
        for line in sys.stdin:
            self._commands.put(json.loads(line))
        self._commands.put({"do": "close"})

    def _obey_commands(self) -> bool:
        """False if the member shall close."""
        while not self._commands.empty():
            command = self._commands.get()
            match command["do"]:
                case "close":
                    return False
                case "subscribe":
                    self._subscribe(command["topics"])
                case "stop polling":
                    self._is_polling = False
                    emit("stopped polling")
                case "poll":
                    self._is_polling = True
                case "commit":
                    topic, partition, offset = command["offset"]
                    self._commit([TopicPartition(topic, partition, offset)])
        return True

    def _subscribe(self, topics: list[str]) -> None:
        self._consumer.subscribe(
            topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def _poll(self) -> None:
        message = self._consumer.poll(0.05)
        if message is not None:
            self._take(message)
        if self._uncommitted and (message is None or self._uncommitted >= RECORDS_A_COMMIT):
            self._commit_all()

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            emit("error", code=error.name(), text=error.str())
            return
        value = (message.value() or b"").decode()
        emit(
            "record",
            topic=message.topic(),
            partition=message.partition(),
            offset=message.offset(),
            value=value,
        )
        self._uncommitted += 1

    def _commit_all(self) -> None:
        """A rejected commit is repeated with the next: a cooperative member reads on while its group rebalances."""
        if self._uncommitted and (not self._commits or self._commit(None)):
            self._uncommitted = 0

    def _commit(self, offsets: list[TopicPartition] | None) -> bool:
        try:
            asked = {} if offsets is None else {"offsets": offsets}
            done = self._consumer.commit(asynchronous=False, **asked)
            errors = [p.error for p in done if p.error is not None]
        except KafkaException as failed:
            errors = [failed.args[0]]
        emit("committed", error=errors[0].name() if errors else None)
        return not errors

    def _on_assign(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        emit("assigned", partitions=[[p.topic, p.partition] for p in partitions])

    def _on_revoke(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._commit_all()
        emit("revoked", partitions=[[p.topic, p.partition] for p in partitions])

    def _on_lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._uncommitted = 0
        emit("lost", partitions=[[p.topic, p.partition] for p in partitions])


def emit(event: str, **fields: object) -> None:
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    arguments = json.loads(sys.argv[1])
    GroupMember(arguments["config"], arguments["topics"], arguments["commits"]).run()
