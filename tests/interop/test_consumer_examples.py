"""Each example of the consumers' guide works as the guide says, as a separate process."""

import contextlib
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Position
from tests.interop.brokers import RunningBroker
from tests.interop.librdkafka import create_topic, flush, wait_until

pytestmark = pytest.mark.contract

EXAMPLES = Path(__file__).parents[2] / "examples" / "consumers"
COUNT = 50
# Examples that read a topic from its beginning, commit what they have handled, and run until they are stopped.
READERS = [
    "at_least_once",
    "at_most_once",
    "auto_commit",
    "consumer_threads",
    "manual_commit",
    "parallel_consumer",
    "parallel_processes",
]


class Program:
    """An example that runs, with its output in a file."""

    def __init__(self, command: list[str], output: Path) -> None:
        self.output = output
        with output.open("wb") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)

    def text(self) -> str:
        return self.output.read_text()

    def handled(self) -> list[int]:
        return [int(number) for number in re.findall(r"^handled (\d+)\b", self.text(), re.MULTILINE)]

    def stop(self, how: signal.Signals = signal.SIGINT) -> int:
        self.process.send_signal(how)
        return self.process.wait(60)


class Examples:
    def __init__(self, broker: RunningBroker, topic: str, folder: Path) -> None:
        self._arguments = [broker.bootstrap, topic, f"{topic}-group"]
        self._folder = folder
        self.programs: list[Program] = []

    def start(self, name: str, *arguments: str) -> Program:
        command = [sys.executable, str(EXAMPLES / f"{name}.py"), *self._arguments, *arguments]
        program = Program(command, self._folder / f"{name}-{len(self.programs)}.txt")
        self.programs.append(program)
        return program


@pytest.fixture
def examples(broker: RunningBroker, topic_name: str, tmp_path: Path) -> Iterator[Examples]:
    create_topic(broker.bootstrap, topic_name, partitions=2)
    examples = Examples(broker, topic_name, tmp_path)
    yield examples
    for program in examples.programs:
        print(f"--- {program.output.name}\n{program.text()}")  # shown if the test fails
        with contextlib.suppress(ProcessLookupError):
            program.process.kill()
        program.process.wait()


def produce(broker: RunningBroker, topic: str, numbers: range, **options: Any) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for n in numbers:
        producer.produce(topic, str(n).encode(), str(n).encode(), **options)
    flush(producer)


def committed(broker: RunningBroker, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": f"{topic}-group"})
    with contextlib.closing(consumer):
        positions = consumer.committed([Position(topic, p) for p in (0, 1)], timeout=30)
    return sum(max(0, position.offset) for position in positions)


def test_every_example_is_tested() -> None:
    others = {"dead_letters", "replay", "seek_by_time"}
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(READERS) | others


@pytest.mark.parametrize("name", READERS)
def test_a_reader_handles_all_commits_all_and_goes_on_from_there(
    broker: RunningBroker, topic_name: str, examples: Examples, name: str
) -> None:
    produce(broker, topic_name, range(COUNT))
    first = examples.start(name)
    wait_until(lambda: len(first.handled()) >= COUNT, f"{name} handles all")
    assert first.stop() == 0, first.text()
    assert sorted(first.handled()) == list(range(COUNT))
    assert committed(broker, topic_name) == COUNT
    produce(broker, topic_name, range(COUNT, COUNT + 10))
    second = examples.start(name)
    wait_until(lambda: len(second.handled()) >= 10, f"{name} goes on")
    assert second.stop() == 0, second.text()
    assert sorted(second.handled()) == list(range(COUNT, COUNT + 10))


def test_replay_reads_all_and_leaves_the_group_as_it_is(
    broker: RunningBroker, topic_name: str, examples: Examples
) -> None:
    produce(broker, topic_name, range(COUNT))
    program = examples.start("replay")
    assert program.process.wait(60) == 0, program.text()
    assert sorted(program.handled()) == list(range(COUNT))
    assert committed(broker, topic_name) == 0


def test_seek_by_time_begins_with_the_first_record_that_is_not_older(
    broker: RunningBroker, topic_name: str, examples: Examples
) -> None:
    noon = datetime.now().astimezone() - timedelta(hours=2)
    noon_ms = int(noon.timestamp() * 1000)
    produce(broker, topic_name, range(COUNT), timestamp=noon_ms - 60_000)
    produce(broker, topic_name, range(COUNT, COUNT + 10), timestamp=noon_ms + 60_000)
    program = examples.start("seek_by_time", noon.isoformat())
    wait_until(lambda: len(program.handled()) >= 10, "what is newer is handled")
    assert program.stop() == 0, program.text()
    assert sorted(program.handled()) == list(range(COUNT, COUNT + 10))


def test_the_example_of_dead_letters_shows_what_a_handler_failed_on(
    broker: RunningBroker, topic_name: str, examples: Examples
) -> None:
    create_topic(broker.bootstrap, f"{topic_name}.dead")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic_name, b"poison", partition=1)
    flush(producer)
    consumer, reader = examples.start("parallel_consumer"), examples.start("dead_letters")
    line = f"{topic_name}-1@0 failed with ValueError: this record makes no sense\n"
    wait_until(lambda: line in reader.text(), "the dead letter is read")
    assert consumer.stop(signal.SIGTERM) == 0
    assert reader.stop() == 0
