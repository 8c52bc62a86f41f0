"""The `kafka.*` options as the configuration of librdkafka's clients, so that options written for Java serve too."""

import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException

from ottla.pipeline.errors import PipelineError

Client = TypeVar("Client")

PREFIX = "kafka."

# Java's name: librdkafka's name, where they differ and the meaning is the same
RENAMED = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "request.timeout.ms": "socket.timeout.ms",
    "send.buffer.bytes": "socket.send.buffer.bytes",
}
# A broker that is away is told of by the error that follows; librdkafka's own lines would break into a display.
LOGGING = {"log_level": 2}

NO_SUCH_PROPERTY = re.compile(r'No such configuration property: "([^"]+)"')
JAAS_CREDENTIAL = re.compile(r'\b(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')


def kafka_properties(options: Mapping[str, str]) -> dict[str, str]:
    """The properties among a source's or sink's options, under librdkafka's names."""
    properties: dict[str, str] = {}
    for option, value in options.items():
        name = option.lower()
        if not name.startswith(PREFIX):
            continue
        name = name.removeprefix(PREFIX)
        if name == "sasl.jaas.config":
            properties.update(jaas_credentials(value))
        else:
            properties[RENAMED.get(name, name)] = value
    if "bootstrap.servers" not in properties:
        raise PipelineError(
            "The option `kafka.bootstrap.servers` is missing.", "Give host:port of one or more brokers."
        )
    return properties


def jaas_credentials(value: str) -> dict[str, str]:
    """librdkafka takes the user's name and password by themselves, Java inside a line for its login module."""
    credentials = {
        f"sasl.{name}": re.sub(r"\\(.)", r"\1", text) for name, text in JAAS_CREDENTIAL.findall(value)
    }
    if credentials.keys() != {"sasl.username", "sasl.password"}:
        raise PipelineError(
            "The option `kafka.sasl.jaas.config` holds no username and password that can be read.",
            "Give `kafka.sasl.username` and `kafka.sasl.password` instead.",
        )
    return credentials


# By bootstrap servers, why brokers there have turned our clients away. librdkafka goes on trying, and its requests run
# out of time without a word of the reason.
_turned_away: dict[str, str] = {}


def rejection_reason(config: Mapping[str, Any]) -> str | None:
    return _turned_away.get(config["bootstrap.servers"])


def rejection_listener(config: Mapping[str, Any]) -> dict[str, Any]:
    servers = config["bootstrap.servers"]

    def listen(error: KafkaError) -> None:
        if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):
            _turned_away[servers] = error.str()

    _turned_away.pop(servers, None)
    return {"error_cb": listen}


def make_client(kind: Callable[[dict[str, Any]], Client], config: Mapping[str, Any]) -> Client:
    """A confluent-kafka client; a property that only Java's clients know is left out with a warning."""
    config = {**LOGGING, **rejection_listener(config), **config}
    while True:
        try:
            return kind(config)
        except KafkaException as error:
            said: KafkaError = error.args[0]
            unknown = NO_SUCH_PROPERTY.search(said.str())
            if unknown is None or unknown[1] not in config:
                raise PipelineError(
                    f"The options `kafka.*` do not fit together: {said.str()}.", "Correct them."
                ) from error
            del config[unknown[1]]
            warnings.warn(
                f"The option kafka.{unknown[1]} is not one that librdkafka knows: it is ignored.",
                stacklevel=2,
            )
