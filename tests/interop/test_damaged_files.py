"""Files that are damaged or lost between a stop and the next start: nothing acknowledged is deleted, nothing aborted is
shown, and whatever stops the start is named.
"""

from collections.abc import Callable

import pytest
from tests.interop.brokers import RunningBroker
from tests.interop.librdkafka import create_topic
from tests.interop.transaction_clients import TRANSACTION_BROKER, Transactional, committed_values, numbers

INDEXES = {
    "all indexes": (".index", ".timeindex", ".txnindex"),
    "transaction indexes alone": (".txnindex",),
    "indexes and producer snapshots": (".index", ".timeindex", ".txnindex", ".snapshot"),
}


def write_transactions(bootstrap: str, topic: str, transactional_id: str) -> list[str]:
    """Over several segments; the longest begins first and is aborted last. Returns the committed values."""
    create_topic(bootstrap, topic, config={"segment.bytes": str(1 << 20)})
    padding = "x" * 100_000
    longest = Transactional(bootstrap, f"{transactional_id}-longest")
    longest.begin()
    longest.send(topic, ["aborted at the end"])
    producer = Transactional(bootstrap, transactional_id)
    for number in range(10):
        producer.begin()
        producer.send(topic, [f"aborted {number} {part} {padding}" for part in range(4)])
        producer.abort()
        producer.transaction(topic, [str(number)])
    longest.abort()
    return list(numbers(0, 10))


@pytest.mark.parametrize("suffixes", INDEXES.values(), ids=INDEXES)
@pytest.mark.parametrize("stop", ["clean", "kill"])
def test_aborted_records_stay_hidden_when_the_indexes_are_deleted(
    own_broker: Callable[..., RunningBroker],
    topic_name: str,
    transactional_id: str,
    suffixes: tuple[str, ...],
    stop: str,
) -> None:
    broker = own_broker(set=TRANSACTION_BROKER)
    committed = write_transactions(broker.bootstrap, topic_name, transactional_id)
    if stop == "clean":
        broker.stop()
    else:
        broker.kill()
    folder = broker.data_dir / f"{topic_name}-0"
    assert len(list(folder.glob("*.log"))) >= 4
    for path in [path for path in folder.iterdir() if path.suffix in suffixes]:
        path.unlink()
    broker.start()
    assert committed_values(broker.bootstrap, topic_name) == committed


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-5], lambda data: b"\x55" * len(data)], ids=["cut", "garbage"]
)
def test_aborted_records_stay_hidden_when_the_transaction_indexes_are_damaged(
    own_broker: Callable[..., RunningBroker],
    topic_name: str,
    transactional_id: str,
    damage: Callable[[bytes], bytes],
) -> None:
    broker = own_broker(set=TRANSACTION_BROKER)
    committed = write_transactions(broker.bootstrap, topic_name, transactional_id)
    broker.stop()
    indexes = [p for p in (broker.data_dir / f"{topic_name}-0").glob("*.txnindex") if p.stat().st_size]
    assert len(indexes) >= 3
    for path in indexes:
        path.write_bytes(damage(path.read_bytes()))
    broker.start()
    assert committed_values(broker.bootstrap, topic_name) == committed
