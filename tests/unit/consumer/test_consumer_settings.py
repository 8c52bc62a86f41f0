"""Arguments are checked before anything runs, and the error says what to do."""

import re
from typing import Any

import pytest

from ottla.consumer import ConsumerThreads, ParallelConsumer, Record, Retry
from ottla.consumer.settings import connection_config, consumer_config

CONFIG = {"bootstrap.servers": "nowhere:1", "group.id": "g"}


def handle(_: Record) -> None: ...


async def handle_later(_: Record) -> None: ...


def parallel(
    config: dict[str, Any] | None = None, topics: Any = ("t",), handler: Any = handle, **options: Any
) -> ParallelConsumer:
    return ParallelConsumer(config or CONFIG, topics, handler, **{"concurrency": 2, **options})


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"config": {"bootstrap.servers": "x"}}, "the config has no group.id"),
        ({"config": CONFIG | {"enable.auto.commit": True}}, "Remove enable.auto.commit"),
        ({"config": CONFIG | {"on_commit": print}}, "Remove on_commit"),
        ({"topics": "orders"}, "topics='orders': set a list"),
        ({"topics": []}, "topics=[]: set a list"),
        ({"dead_letter_topic": "t"}, "is also read: records that fail would come back for ever"),
        ({"topics": ["^t.*"], "dead_letter_topic": "t.dead"}, "is also read"),
        ({"concurrency": 0}, "concurrency=0: set 1 or more"),
        ({"in_flight_max": 0}, "in_flight_max=0: set 1 or more"),
        ({"order": "keys"}, 'order=\'keys\': set "key", "partition" or "none"'),
        ({"drain_timeout_s": -1}, "drain_timeout_s=-1: set 0 or more"),
        ({"config": CONFIG | {"max.poll.interval.ms": 10_000}}, "drain_timeout_s=30.0: a member that takes"),
    ],
)
def test_wrong_arguments_are_rejected(options: dict[str, Any], error: str) -> None:
    with pytest.raises(ValueError, match=re.escape(error)):
        parallel(**options)


def test_a_dead_letter_topic_that_no_subscription_includes_is_accepted() -> None:
    parallel(topics=["^t$", "^[", "u"], dead_letter_topic="t.dead")


def test_a_coroutine_function_is_rejected() -> None:
    with pytest.raises(TypeError, match="is a coroutine function"):
        parallel(handler=handle_later)
    with pytest.raises(TypeError, match="is a coroutine function"):
        ConsumerThreads(CONFIG, ["t"], handle_later, threads=1)


def test_a_handler_that_cannot_be_pickled_is_accepted_for_threads_only() -> None:
    parallel(handler=lambda _: None)
    with pytest.raises(TypeError, match=r"cannot be sent to another process .* or threads"):
        parallel(handler=lambda _: None, processes=True)
    with pytest.raises(TypeError, match="is not a function of one record"):
        parallel(handler=7)


def test_auto_commit_may_be_off_already() -> None:
    for off in (False, "false", 0):
        assert consumer_config(CONFIG | {"enable.auto.commit": off})["enable.auto.commit"] is False


def test_the_dead_letter_producer_has_the_connection_settings_of_the_consumer() -> None:
    secret = {
        "security.protocol": "SASL_SSL",
        "sasl.username": "u",
        "ssl.ca.location": "ca.pem",
        "client.id": "c",
    }
    config = CONFIG | secret | {"auto.offset.reset": "earliest", "max.poll.interval.ms": 1}
    assert connection_config(config) == {"bootstrap.servers": "nowhere:1"} | secret


def test_the_backoff_doubles_up_to_its_limit() -> None:
    retry = Retry(attempts=6, backoff_s=1.0, backoff_max_s=5.0)
    assert [retry.delay_s(n) for n in range(1, 7)] == [1.0, 2.0, 4.0, 5.0, 5.0, None]
    assert retry.total_s() == 17.0
    assert Retry(attempts=1).delay_s(1) is None
    assert Retry(attempts=5_000).delay_s(4_999) == 30.0


@pytest.mark.parametrize("wrong", [{"attempts": 0}, {"backoff_s": -1}, {"backoff_s": 2, "backoff_max_s": 1}])
def test_a_wrong_retry_is_rejected(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="="):
        Retry(**wrong)
