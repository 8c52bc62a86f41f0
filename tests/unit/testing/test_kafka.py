"""A broker in a thread: it serves real clients, keeps its data over a restart, and leaves nothing behind."""

import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from confluent_kafka import Producer

from ottla.model.config import ConfigError
from ottla.testing import AsyncKafka, BrokerStoppedError, Kafka
from ottla.testing.broker_log import broker_loggers
from ottla.testing.helpers import wait_until

pytestmark = pytest.mark.slow
SOURCE = Path(__file__).parents[3] / "src" / "ottla"


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files during a test."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_records_are_read_as_they_were_produced(broker: Kafka):
    topic = broker.create_topic(partitions=2)
    broker.produce(topic, "a", b"b", ("key", "c"), ("key", None), partition=1, headers=[("h", b"1")])
    found = broker.wait_for(topic, 4)
    assert [(record.partition, record.offset, record.key, record.value) for record in found] == [
        (1, 0, None, b"a"),
        (1, 1, None, b"b"),
        (1, 2, b"key", b"c"),
        (1, 3, b"key", None),
    ]
    assert found[0].headers == (("h", b"1"),)
    assert broker.records(topic) == found


def test_a_restart_keeps_address_and_data(temporary: Path):
    threads = set(threading.enumerate())
    with Kafka() as kafka:
        bootstrap = kafka.bootstrap
        kafka.produce("orders", "1 pear")
        kafka.restart()
        assert kafka.bootstrap == bootstrap
        assert [record.value for record in kafka.records("orders")] == [b"1 pear"]
        kafka.stop()
        with pytest.raises(BrokerStoppedError, match="does not run"):
            kafka.produce("orders", "2 pears")
    assert list(temporary.iterdir()) == []
    assert set(threading.enumerate()) <= threads


def test_configs_are_the_brokers(temporary: Path):
    with Kafka({"num.partitions": 3, "auto.create.topics.enable": True}) as kafka:
        kafka.produce("orders", "1 pear", partition=2)
        assert [record.partition for record in kafka.records("orders")] == [2]
    with pytest.raises(ConfigError, match=r"no\.such\.config"):
        Kafka({"no.such.config": 1}).start()
    assert list(temporary.iterdir()) == []


def test_a_kafka_that_was_not_started_says_so():
    with pytest.raises(BrokerStoppedError, match="with Kafka"):
        _ = Kafka().bootstrap


def test_the_brokers_log_does_not_reach_the_program(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.DEBUG):
        with Kafka() as other:
            other.create_topic()
            assert "serves on" in other.log.text()
        assert not [record for record in caplog.records if record.name.startswith("ottla.")]


def test_the_import_does_not_load_hypothesis_and_leaves_it_usable():
    program = (
        "import sys\nfrom ottla.testing import Kafka\nassert 'hypothesis' not in sys.modules\n"
        "import hypothesis.strategies\nprint(hypothesis.strategies.integers())"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout == "integers()\n"


def test_all_loggers_of_a_broker_are_known():
    packages = ("broker", "core", "env", "protocol", "records", "rpc", "storage")
    sources = [path.read_text() for package in packages for path in (SOURCE / package).rglob("*.py")]
    used = {name for text in sources for name in re.findall(r'getLogger\("(ottla\.\w+)"\)', text)}
    assert used == {logger.name for logger in broker_loggers()}


def test_ctrl_c_leaves_nothing_behind(tmp_path: Path):
    program = (
        "from ottla.testing import Kafka\n"
        "import signal, time\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it\n"
        "with Kafka() as kafka:\n"
        "    kafka.produce('orders', '1 pear')\n"
        "    print('ready', flush=True)\n"
        "    time.sleep(600)\n"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=200)
    assert b"KeyboardInterrupt" in errors
    assert list(tmp_path.iterdir()) == []


def test_a_broker_with_a_full_disk_stops_and_serves_again_when_it_has_room():
    with Kafka() as kafka:
        kafka.produce("orders", "1 pear")
        kafka.fill_disk()
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "message.timeout.ms": 2000})
        errors: list[object] = []
        producer.produce("orders", "lost", on_delivery=lambda error, message: errors.append(error))
        producer.flush(60)
        assert not any(error is None for error in errors)
        assert wait_until(lambda: not kafka._thread.is_running, 60)  # type: ignore[union-attr]
        with pytest.raises(BrokerStoppedError, match="No space left on device"):
            kafka.records("orders")
        kafka.free_disk()
        kafka.restart()
        assert [record.value for record in kafka.records("orders")] == [b"1 pear"]


async def _use_async_kafka() -> list[bytes | None]:
    async with AsyncKafka() as kafka:
        topic = await kafka.create_topic()
        await kafka.produce(topic, "1 pear")
        return [record.value for record in await kafka.wait_for(topic, 1)]


def test_the_async_variant_serves(temporary: Path):
    import asyncio

    assert asyncio.run(_use_async_kafka()) == [b"1 pear"]
    assert list(temporary.iterdir()) == []
