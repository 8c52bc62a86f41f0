"""A stand-in for the group coordinator, and messages of any version from plain values, for the handlers' tests."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from kio.index import load_request_schema
from tests.unit.broker.bench import Bench

from ottla.broker.pending import Pending, completed
from ottla.core.coordination import Command
from ottla.core.groups.offsets.repeated_commits import CommitTemplates
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import default_of, entity_in, is_array


class FakeGroups:
    """Gives each command the answer that the test has for it, and keeps what it was asked."""

    def __init__(self, answer: Any) -> None:
        self._answer: Callable[[Any], Any] = answer if callable(answer) else lambda command: answer
        self.commands: list[Any] = []
        self.templates = CommitTemplates()

    def submit(self, group_id: str, command: Command[Any]) -> Pending[Any]:
        self.commands.append(command)
        return completed(self._answer(command))

    def list_groups(self, command: Command[Any]) -> Pending[Any]:
        return self.submit("", command)

    @property
    def shards(self) -> "FakeGroups":
        return self

    async def make_topic(self) -> None:
        """It is there."""

    def leader_for(self, key: str) -> Any:
        return self._answer(key)

    def reconfigure(self) -> None:
        """Nothing to take over."""

    def image_changed(self, changes: Any, image: Any) -> None:
        """Nothing to take over."""


def with_groups(bench: Bench, answer: Any) -> FakeGroups:
    """The broker of `bench` with `answer`, or what the function `answer` makes of a command."""
    fake: Any = FakeGroups(answer)
    bench.broker._groups = fake
    return fake  # type: ignore[no-any-return]


def refused(code: ErrorCode) -> KafkaError:
    return KafkaError(code, "refused by the test")


def versions(key: ApiKey) -> range:
    return range(APIS[key].min_version, APIS[key].max_version + 1)


def message(key: ApiKey, version: int, /, **values: Any) -> Any:
    """A request of `version`; values of fields that it does not have are left out, of nested ones are dicts."""
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
