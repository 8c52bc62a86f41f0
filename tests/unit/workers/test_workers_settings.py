"""What a user gives is checked before anything runs, and a mistake is told in words."""

import re
from typing import Any

import pytest

from ottla.workers import ConsumerThreads, Record, Retry, WorkerPool
from ottla.workers.settings import connection_config, consumer_config

CONFIG = {"bootstrap.servers": "nowhere:1", "group.id": "g"}


def handle(_: Record) -> None: ...


async def handle_later(_: Record) -> None: ...


def pool(
    config: dict[str, Any] | None = None, topics: Any = ("t",), handler: Any = handle, **options: Any
) -> WorkerPool:
    return WorkerPool(config or CONFIG, topics, handler, **{"workers": 2, **options})


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"config": {"bootstrap.servers": "x"}}, "the config has no group.id"),
        ({"config": CONFIG | {"enable.auto.commit": True}}, "Take enable.auto.commit out"),
        ({"config": CONFIG | {"on_commit": print}}, "Take on_commit out"),
        ({"topics": "orders"}, "topics='orders': give a list"),
        ({"topics": []}, "topics=[]: give a list"),
        ({"dead_letter_topic": "t"}, "is also read: records that fail would go round for ever"),
        ({"topics": ["^t.*"], "dead_letter_topic": "t.dead"}, "is also read"),
        ({"workers": 0}, "workers=0: it is 1 or more"),
        ({"in_flight_max": 0}, "in_flight_max=0: it is 1 or more"),
        ({"order": "keys"}, 'order=\'keys\': it is "key", "partition" or "none"'),
        ({"drain_timeout_s": -1}, "drain_timeout_s=-1: it is 0 or more"),
        ({"config": CONFIG | {"max.poll.interval.ms": 10_000}}, "drain_timeout_s=30.0: a member that takes"),
    ],
)
def test_a_pool_that_cannot_work_is_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        pool(**options)


def test_a_dead_letter_topic_that_a_pattern_does_not_take_in_is_welcome() -> None:
    pool(topics=["^t$", "^[", "u"], dead_letter_topic="t.dead")


def test_a_coroutine_function_is_refused_since_it_would_return_before_the_record_is_handled() -> None:
    with pytest.raises(TypeError, match="is a coroutine function"):
        pool(handler=handle_later)
    with pytest.raises(TypeError, match="is a coroutine function"):
        ConsumerThreads(CONFIG, ["t"], handle_later, threads=1)


def test_a_handler_that_cannot_be_pickled_is_refused_for_processes_and_welcome_for_threads() -> None:
    pool(handler=lambda _: None)
    with pytest.raises(TypeError, match=r"cannot be sent to worker processes .* or use threads"):
        pool(handler=lambda _: None, processes=True)
    with pytest.raises(TypeError, match="is not a function of one record"):
        pool(handler=7)


def test_auto_commit_that_is_off_already_is_no_mistake() -> None:
    for off in (False, "false", 0):
        assert consumer_config(CONFIG | {"enable.auto.commit": off})["enable.auto.commit"] is False


def test_the_dead_letter_producer_reaches_the_cluster_as_the_consumer_does() -> None:
    secret = {
        "security.protocol": "SASL_SSL",
        "sasl.username": "u",
        "ssl.ca.location": "ca.pem",
        "client.id": "c",
    }
    config = CONFIG | secret | {"auto.offset.reset": "earliest", "max.poll.interval.ms": 1}
    assert connection_config(config) == {"bootstrap.servers": "nowhere:1"} | secret


def test_the_rest_between_attempts_doubles_up_to_its_limit() -> None:
    retry = Retry(attempts=6, backoff_s=1.0, backoff_max_s=5.0)
    assert [retry.delay_s(n) for n in range(1, 7)] == [1.0, 2.0, 4.0, 5.0, 5.0, None]
    assert retry.total_s() == 17.0
    assert Retry(attempts=1).delay_s(1) is None
    assert Retry(attempts=5_000).delay_s(4_999) == 30.0


@pytest.mark.parametrize("wrong", [{"attempts": 0}, {"backoff_s": -1}, {"backoff_s": 2, "backoff_max_s": 1}])
def test_a_retry_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="="):
        Retry(**wrong)
