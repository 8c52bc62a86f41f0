"""Creates librdkafka's clients from the `kafka.*` options, also from options that were written for Java's clients."""

import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException

from ottla.pipeline.errors import PipelineError

_Client = TypeVar("_Client")

PREFIX = "kafka."

# Java's name: librdkafka's name for the same property
_RENAMED = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "request.timeout.ms": "socket.timeout.ms",
    "send.buffer.bytes": "socket.send.buffer.bytes",
}
# A request to a broker that is down raises an error; librdkafka's own log lines would break the live display.
_LOGGING = {"log_level": 2}

_NO_SUCH_PROPERTY = re.compile(r'No such configuration property: "([^"]+)"')
_JAAS_CREDENTIAL = re.compile(r'\b(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')


def kafka_properties(options: Mapping[str, str]) -> dict[str, str]:
    """The `kafka.*` properties among the options of a source or sink, under librdkafka's names."""
    properties: dict[str, str] = {}
    for option, value in options.items():
        name = option.lower()
        if not name.startswith(PREFIX):
            continue
        name = name.removeprefix(PREFIX)
        if name == "sasl.jaas.config":
            properties.update(_jaas_credentials(value))
        else:
            properties[_RENAMED.get(name, name)] = value
    if "bootstrap.servers" not in properties:
        raise PipelineError(
            "The option `kafka.bootstrap.servers` is missing.", "Set it to host:port of one or more brokers."
        )
    return properties


def _jaas_credentials(value: str) -> dict[str, str]:
    """Java has username and password inside a line for its login module, librdkafka as two properties."""
    credentials = {
        f"sasl.{name}": re.sub(r"\\(.)", r"\1", text) for name, text in _JAAS_CREDENTIAL.findall(value)
    }
    if credentials.keys() != {"sasl.username", "sasl.password"}:
        raise PipelineError(
            "The option `kafka.sasl.jaas.config` has no readable username and password.",
            "Set `kafka.sasl.username` and `kafka.sasl.password` instead.",
        )
    return credentials


# By bootstrap servers, why brokers there rejected our clients. librdkafka keeps retrying, and its requests time out
# without the reason.
_rejections: dict[str, str] = {}


def rejection_reason(config: Mapping[str, Any]) -> str | None:
    return _rejections.get(config["bootstrap.servers"])


def _rejection_listener(config: Mapping[str, Any]) -> dict[str, Any]:
    servers = config["bootstrap.servers"]

    def listen(error: KafkaError) -> None:
        if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):
            _rejections[servers] = error.str()

    _rejections.pop(servers, None)
    return {"error_cb": listen}


def make_client(kind: Callable[[dict[str, Any]], _Client], config: Mapping[str, Any]) -> _Client:
    """A confluent-kafka client. Leaves out, with a warning, properties that only Java's clients have."""
    config = {**_LOGGING, **_rejection_listener(config), **config}
    while True:
        try:
            return kind(config)
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            unknown = _NO_SUCH_PROPERTY.search(reason.str())
            if unknown is None or unknown[1] not in config:
                raise PipelineError(
                    f"The options `kafka.*` are invalid: {reason.str()}.", "Fix them."
                ) from error
            del config[unknown[1]]
            warnings.warn(
                f"librdkafka has no property {unknown[1]}: the option kafka.{unknown[1]} is ignored.",
                stacklevel=2,
            )
