"""Each example of the exactly-once guide works as the guide says, as a separate process that is killed."""

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.interop.brokers import RunningBroker
from tests.interop.group_clients import committed, produce_to_each
from tests.interop.librdkafka import create_topic, wait_until
from tests.interop.transaction_clients import committed_values

pytestmark = pytest.mark.contract

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "transactions"
COUNT = 3000
Start = Callable[[], subprocess.Popen[str]]


def test_the_guide_shows_the_examples_as_they_are() -> None:
    page = (ROOT / "docs" / "exactly-once.md").read_text()
    shown = dict(re.findall(r"<!-- (examples/\S+) -->\n\n```python\n(.*?)```", page, re.DOTALL))
    assert shown == {str(path.relative_to(ROOT)): path.read_text() for path in sorted(EXAMPLES.glob("*.py"))}


@pytest.fixture(params=["confluent", "aiokafka"])
def start(
    request: pytest.FixtureRequest, transaction_broker: RunningBroker, topic_name: str, group_id: str
) -> Iterator[Start]:
    """Starts the example, which copies partition 0, the only one."""
    last = {"confluent": f"{group_id}-1", "aiokafka": "0"}[request.param]
    program = EXAMPLES / f"copy_{request.param}.py"
    running: list[subprocess.Popen[str]] = []

    def run() -> subprocess.Popen[str]:
        command = [
            sys.executable,
            str(program),
            transaction_broker.bootstrap,
            topic_name,
            f"{topic_name}-out",
        ]
        process = subprocess.Popen([*command, group_id, last], stdout=subprocess.PIPE, text=True)
        running.append(process)
        return process

    yield run
    for process in running:
        process.kill()
        with process:
            pass


def test_the_loop_copies_exactly_once_even_if_it_is_killed_and_stopped(
    transaction_broker: RunningBroker, topic_name: str, group_id: str, start: Start
) -> None:
    bootstrap = transaction_broker.bootstrap
    for name in (topic_name, f"{topic_name}-out"):
        create_topic(bootstrap, name)
    produce_to_each(bootstrap, topic_name, 1, COUNT)
    first = start()
    assert first.stdout is not None
    assert first.stdout.readline().startswith("committed ")
    first.kill()
    first.wait()
    second = start()
    wait_until(lambda: committed(bootstrap, group_id, topic_name) == COUNT, "all is copied")
    produce_to_each(bootstrap, topic_name, 1, 10)
    wait_until(lambda: committed(bootstrap, group_id, topic_name) == COUNT + 10, "new records are copied")
    second.send_signal(signal.SIGINT)
    assert second.wait(60) == 0
    wanted = [str(number) for number in (*range(COUNT), *range(10))]
    wait_until(
        lambda: len(committed_values(bootstrap, f"{topic_name}-out")) >= len(wanted), "all is readable"
    )
    assert committed_values(bootstrap, f"{topic_name}-out") == wanted
