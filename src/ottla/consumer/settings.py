"""Checks the arguments of a consumer before anything runs: the client's config, the topics, the handler."""

import inspect
import pickle
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ottla.consumer.record import Handler

# librdkafka's default.
_DEFAULT_MAX_POLL_INTERVAL_MS = 300_000
# The library sets these: only it knows which records are handled and may be committed.
_RESERVED = ("enable.auto.commit", "enable.auto.offset.store", "on_commit")
_CONNECTION = ("bootstrap.servers", "metadata.broker.list", "error_cb", "logger", "log_level", "oauth_cb")
_CONNECTION_PREFIXES = ("security.", "sasl.", "ssl.", "enable.ssl.", "client.", "socket.", "broker.address.")


def consumer_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config of a client that commits nothing by itself."""
    for name in _RESERVED:
        # Also "false": librdkafka takes the values of its config as text.
        if str(config.get(name)).lower() not in ("none", "false", "0"):
            raise ValueError(
                f"{name}={config[name]!r}: offsets are committed when their records are handled. Remove {name}, "
                f"and set commit_interval_s instead."
            )
    if not config.get("group.id"):
        raise ValueError("the config has no group.id: set the name of the consumer group")
    return {**config, "enable.auto.commit": False, "enable.auto.offset.store": False}


def connection_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a consumer's config that says how to reach the cluster, for a producer."""
    return {
        name: value
        for name, value in config.items()
        if name in _CONNECTION or name.startswith(_CONNECTION_PREFIXES)
    }


def max_poll_interval_s(config: Mapping[str, Any]) -> float:
    return float(config.get("max.poll.interval.ms", _DEFAULT_MAX_POLL_INTERVAL_MS)) / 1000


def check_topics(topics: Sequence[str], dead_letter_topic: str | None) -> None:
    if isinstance(topics, str) or not topics:
        raise ValueError(f"topics={topics!r}: set a list of at least one topic")
    if dead_letter_topic is not None and any(_matches(topic, dead_letter_topic) for topic in topics):
        raise ValueError(
            f"dead_letter_topic={dead_letter_topic!r} is also read: records that fail would come back for ever. "
            f"Set another topic, and read it with another consumer."
        )


def _matches(subscribed: str, topic: str) -> bool:
    """Whether a subscription includes a topic. It is a regular expression if it begins with ^."""
    if not subscribed.startswith("^"):
        return subscribed == topic
    try:
        return re.match(subscribed, topic) is not None
    except re.error:
        # Not an expression in Python's syntax: only the broker can tell what it matches.
        return False


def check_handler(handler: Handler, *, to_be_pickled: bool = False) -> None:
    if not callable(handler):
        raise TypeError(f"handler={handler!r} is not a function of one record")
    if inspect.iscoroutinefunction(handler):
        raise TypeError(
            f"handler {handler!r} is a coroutine function: it would return before the record is handled. "
            f"Use a plain function, for instance one that calls asyncio.run."
        )
    if to_be_pickled:
        try:
            pickle.dumps(handler)
        except Exception as error:
            raise TypeError(
                f"handler {handler!r} cannot be sent to another process ({error}). Use a function from the top level "
                f"of a module, or threads."
            ) from error


def check_at_least(name: str, value: float, least: float) -> None:
    if value < least:
        raise ValueError(f"{name}={value}: set {least} or more")


def check_order(order: object) -> None:
    if order not in ("key", "partition", "none"):
        raise ValueError(f'order={order!r}: set "key", "partition" or "none"')


def check_drain_timeout(drain_timeout_s: float, config: Mapping[str, Any]) -> None:
    check_at_least("drain_timeout_s", drain_timeout_s, 0)
    limit_s = max_poll_interval_s(config)
    if drain_timeout_s >= limit_s:
        raise ValueError(
            f"drain_timeout_s={drain_timeout_s}: a member that takes max.poll.interval.ms ({limit_s:g} s) to give up "
            f"partitions is removed from its group. Set a shorter time."
        )
