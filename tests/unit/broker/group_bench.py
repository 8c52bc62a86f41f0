"""A fake group coordinator, and messages of any version from plain values, for the tests of handlers."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from kio.index import load_request_schema
from tests.unit.broker.broker_bench import Bench

from ottla.broker.promise import Promise, completed
from ottla.core.coordination import Command
from ottla.core.groups.offsets.repeated_commits import CommitTemplates
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import default_of, entity_in, is_array


class FakeGroups:
    """Completes each command with the response of the test, and records the commands."""

    def __init__(self, answer: Any) -> None:
        self._answer: Callable[[Any], Any] = answer if callable(answer) else lambda command: answer
        self.commands: list[Any] = []
        self.templates = CommitTemplates()

    def submit(self, group_id: str, command: Command[Any]) -> Promise[Any]:
        self.commands.append(command)
        return completed(self._answer(command))

    def list_groups(self, command: Command[Any]) -> Promise[Any]:
        return self.submit("", command)

    @property
    def runtimes(self) -> "FakeGroups":
        return self

    async def create_topic(self) -> None:
        """It exists."""

    def leader_of(self, key: str) -> Any:
        return self._answer(key)

    def reconfigure(self) -> None:
        """Has no effect."""

    def image_changed(self, changes: Any, image: Any) -> None:
        """Has no effect."""


def with_groups(bench: Bench, answer: Any) -> FakeGroups:
    """Replaces the coordinator. `answer` is the response to all commands, or a function that computes it."""
    fake: Any = FakeGroups(answer)
    bench.services.groups._service = fake
    return fake


def rejected(code: ErrorCode) -> KafkaError:
    return KafkaError(code, "rejected by the test")


def versions(key: ApiKey) -> range:
    return range(APIS[key].min_version, APIS[key].max_version + 1)


def message(key: ApiKey, version: int, /, **values: Any) -> Any:
    """A request of `version`. Values of fields that it does not have are ignored; nested entities are dicts."""
    schema: Any = load_request_schema(key, version)
    return _entity(schema, values)


def _entity(schema: Any, values: dict[str, Any]) -> Any:
    return schema(
        **{
            field.name: _value(field.type, values[field.name]) if field.name in values else default_of(field)
            for field in fields(schema)
        }
    )


def _value(annotation: Any, value: Any) -> Any:
    entity = entity_in(annotation)
    if entity is None or value is None:
        return value
    return tuple(_entity(entity, each) for each in value) if is_array(annotation) else _entity(entity, value)
