"""A stage and its query without Spark, for tests of what reads and runs stages."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ottla.pipeline.settings import setting
from ottla.pipeline.stage import Context, Finding


@dataclass(frozen=True)
class FakeSettings:
    topic: str = setting("the topic")
    from_: str = setting("a name that Python keeps for itself", "")
    size: int = setting("how many", 3, choices=(3, 4))  # type: ignore[arg-type]
    names: tuple[str, ...] = setting("names | of things", ("a", "b"))
    options: dict[str, Any] = setting("anything", {})
    password: str | None = setting("a secret", None)


@dataclass
class FakeQuery:
    """`error` is what it ends with, once it is not active."""

    isActive: bool = True
    error: Exception | None = None
    reports: list[dict[str, Any]] = field(default_factory=list)
    was_stopped: bool = False
    status: Mapping[str, Any] = field(default_factory=lambda: {"message": "Waiting for data to arrive"})

    @property
    def lastProgress(self) -> dict[str, Any] | None:
        return self.reports[-1] if self.reports else None

    @property
    def recentProgress(self) -> list[dict[str, Any]]:
        return self.reports

    def exception(self) -> Exception | None:
        return self.error

    def stop(self) -> None:
        self.was_stopped = True
        self.isActive = False


class FakeStage:
    Settings = FakeSettings

    def __init__(self, name: str, settings: Any = None, context: Context | None = None) -> None:
        self.name = name
        self.settings = settings
        self.found: list[Finding] = []
        self.error: Exception | None = None
        # One for each start; an exception is what the start raises.
        self.queries: list[FakeQuery | Exception] = []

    def check(self) -> Iterator[Finding]:
        yield from self.found
        if self.error is not None:
            raise self.error

    def start(self, spark: Any, trigger: Mapping[str, Any]) -> Any:
        query = self.queries.pop(0)
        if isinstance(query, Exception):
            raise query
        return query
