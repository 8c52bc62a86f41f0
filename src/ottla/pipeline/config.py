"""Reads a `pipeline.toml`, checks it against the settings of its stages, and reports all errors at once."""

import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.settings import key_of, read_settings, setting, unknown_setting
from ottla.pipeline.stage import ClusterSettings, Context, Finding, Stage
from ottla.pipeline.stage_registry import STAGE_GROUPS, load_stage_class

FILE_NAME = "pipeline.toml"
TABLES = ("name", "cluster", "spark", "topics", *STAGE_GROUPS)
# A stage's name is used as a folder's name, in transactional ids and as the name of a query.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_VARIABLE = re.compile(r"\$(\$\{|\{(\w+)\})")
# Stages of these groups write topics, and have WritingSettings as well as their own settings.
_WRITERS = ("sources", "transforms")
_HEADER = re.compile(r"^\s*\[\s*([\w.\"' -]+?)\s*\]\s*(?:#.*)?$")


@dataclass(frozen=True)
class SparkSettings:
    """How Spark runs the stages."""

    master: str = setting("where Spark runs: local[*], spark://HOST:PORT, yarn or k8s://URL", "local[*]")
    checkpoints: str = setting(
        "the folder for the checkpoints, which say how far each stage is; on a cluster one that all machines see",
        "checkpoints",
    )
    interval: str = setting("how often a stage looks for new records, in Spark's format", "1 second")
    restarts_max: int = setting(
        "how often a stage that fails is restarted, with growing pauses and without a finished batch in between, "
        "before it is given up; -1: without limit. Errors that pass by themselves, as when a broker is down, do not "
        "count",
        5,
    )
    conf: dict[str, Any] = setting("Spark's own properties, such as spark.driver.memory", {})


@dataclass(frozen=True)
class TopicSettings:
    """A topic that the pipeline creates if it is missing. One that exists stays as it is."""

    partitions: int = setting("how many partitions; -1 takes the cluster's default", -1)
    replication_factor: int = setting("how many replicas; -1 takes the cluster's default", -1)
    configs: dict[str, Any] = setting("topic configs in Kafka's names, such as retention.ms", {})


@dataclass(frozen=True)
class RunSettings:
    """Settings that every stage has."""

    required: bool = setting(
        "whether the process ends, with exit code 1, when the stage is given up; with false the other stages continue",
        True,
    )


@dataclass(frozen=True)
class WritingSettings:
    """Settings that allow a stage to write although the exactly-once sink rejected it; the error says what to set."""

    reset_sink: str = setting(
        "the id of the query that this stage replaces after its checkpoint was lost, or QUERY@BATCH after its markers "
        "were lost; the records that it reads again are written again",
        "",
    )
    accept_plan: str = setting(
        "the fingerprint of the plan whose half-written batch this stage may finish; each row must still be in its old "
        "Spark partition",
        "",
    )

    def options(self) -> dict[str, str]:
        """As options of the sink."""
        given = {"resetSink": self.reset_sink, "acceptPlan": self.accept_plan}
        return {name: value for name, value in given.items() if value}


@dataclass(frozen=True)
class StageDeclaration:
    """A stage as the file declares it. `group` is sources, transforms or sinks."""

    group: str
    name: str
    kind: str
    settings: Any
    make: Callable[..., Stage] = field(repr=False)
    required: bool = True


@dataclass(frozen=True)
class Pipeline:
    path: Path
    context: Context
    spark: SparkSettings
    topics: Mapping[str, TopicSettings]
    declared: tuple[StageDeclaration, ...]

    def stages(self, only: str | None = None) -> dict[str, Stage]:
        """The stages by name, sources before transforms before sinks, each in the order of the file."""
        if only is not None and only not in self.names:
            raise _unknown_stage(only, self)
        return {
            item.name: item.make(item.name, item.settings, self.context)
            for item in self.declared
            if only in (None, item.name)
        }

    def find(self, name: str, *groups: str) -> StageDeclaration:
        """The stage of that name in one of `groups`."""
        for item in self.declared:
            if item.name == name and item.group in groups:
                return item
        raise _unknown_stage(name, self, *groups)

    @property
    def names(self) -> list[str]:
        return [item.name for item in self.declared]


class ConfigErrors(PipelineError):
    """All errors of a file, not only the first."""

    def __init__(self, findings: list[Finding]) -> None:
        self.findings = findings
        super().__init__(findings[0].what, findings[0].remedy)

    def __str__(self) -> str:
        return "\n".join(f"{finding.where}: {finding.what} {finding.remedy}" for finding in self.findings)


def _unknown_stage(name: str, pipeline: Pipeline, *groups: str) -> PipelineError:
    known = [item.name for item in pipeline.declared if not groups or item.group in groups]
    what = f"{pipeline.path} has no stage `{name}`" + (
        f" among its {' and '.join(groups)}." if groups else "."
    )
    return PipelineError(what, f"It has: {', '.join(known)}." if known else "It has none.")


def load(path: Path) -> Pipeline:
    """`path` is the file, or the folder with a pipeline.toml."""
    path = path / FILE_NAME if path.is_dir() else path
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise PipelineError(
            f"{path} cannot be read: {error.strerror}.",
            "Name the file with --file, or write one with `ottla pipeline init`.",
        ) from None
    return parse(text, path, os.environ)


def parse(text: str, path: Path, environment: Mapping[str, str]) -> Pipeline:
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise PipelineError(f"{path} is not TOML: {error}.", "Fix that line.") from None
    return _Reader(path, tables, _lines_of_tables(text), environment).pipeline()


def _lines_of_tables(text: str) -> dict[str, int]:
    """The line of each [table]."""
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        header = _HEADER.match(line)
        if header:
            found[re.sub(r"[\"']", "", header[1])] = number
    return found


class _Reader:
    """Reads the tables one after another, and collects their errors."""

    def __init__(
        self, path: Path, tables: dict[str, Any], lines: Mapping[str, int], environment: Mapping[str, str]
    ) -> None:
        self.path = path
        self.tables = tables
        self.lines = lines
        self.environment = environment
        self.findings: list[Finding] = []
        self.sink_options: dict[str, dict[str, str]] = {}

    def pipeline(self) -> Pipeline:
        self._top_level()
        name = self._name()
        cluster = self._table("cluster", self.tables.get("cluster", {}), ClusterSettings)
        spark = self._table("spark", self.tables.get("spark", {}), SparkSettings)
        topics = {
            topic: self._table(f"topics.{topic}", table, TopicSettings)
            for topic, table in self._named("topics").items()
        }
        declared = list(self._stages())
        if self.findings:
            raise ConfigErrors(self.findings)
        assert cluster is not None
        assert spark is not None
        folder = self.path.parent.resolve()
        properties = {key: as_text(value) for key, value in cluster.properties.items()}
        context = Context(
            name,
            replace(cluster, properties=properties),
            folder,
            spark.checkpoints,
            frozenset(topics),
            self.sink_options,
        )
        made = {topic: settings for topic, settings in topics.items() if settings is not None}
        return Pipeline(self.path, context, spark, made, tuple(declared))

    def _top_level(self) -> None:
        for key in self.tables:
            if key not in TABLES:
                self._report("", unknown_setting(key, dict.fromkeys(TABLES), str(self.path)))
        if not any(self.tables.get(group) for group in STAGE_GROUPS):
            self._report(
                "",
                PipelineError("It has no stage.", "Add a [sources.NAME], [transforms.NAME] or [sinks.NAME]."),
            )

    def _name(self) -> str:
        name = self.tables.get("name", self.path.resolve().parent.name)
        if not isinstance(name, str) or not NAME.fullmatch(name):
            self._report("", PipelineError(f"The pipeline's `name` is {name!r}.", _NAME_RULE))
        return str(name)

    def _stages(self) -> Iterator[StageDeclaration]:
        seen: dict[str, str] = {}
        for group in STAGE_GROUPS:
            for name, table in self._named(group).items():
                where = f"{group}.{name}"
                if not NAME.fullmatch(name):
                    self._report(where, PipelineError(f"A stage cannot be named {name!r}.", _NAME_RULE))
                elif name in seen:
                    what = f"The name `{name}` is also that of [{seen[name]}]."
                    self._report(where, PipelineError(what, "Give every stage a name of its own."))
                seen.setdefault(name, where)
                yield from self._stage(group, name, table)

    def _stage(self, group: str, name: str, table: Any) -> Iterator[StageDeclaration]:
        where = f"{group}.{name}"
        try:
            if not isinstance(table, dict):
                raise PipelineError("It is not a table.", f"Write [{where}], and its settings below.")
            kind, make = load_stage_class(group, table.get("kind"))
        except PipelineError as error:
            self._report(where, error)
            return
        own = {key: value for key, value in table.items() if key != "kind"}
        running = self._shared(where, own, RunSettings)
        writing = self._shared(where, own, WritingSettings) if group in _WRITERS else WritingSettings()
        settings = self._table(where, own, make.Settings)
        if settings is not None and running is not None and writing is not None:
            self.sink_options[name] = writing.options()
            yield StageDeclaration(group, name, kind, settings, make, running.required)

    def _shared(self, where: str, own: dict[str, Any], kind: type[Any]) -> Any:
        """Takes the settings of `kind` out of a stage's own."""
        names = {key_of(item) for item in fields(kind)} & {*own}
        return self._table(where, {name: own.pop(name) for name in names}, kind)

    def _named(self, group: str) -> dict[str, Any]:
        tables = self.tables.get(group, {})
        if isinstance(tables, dict):
            return tables
        self._report(
            group, PipelineError("It is not a table.", f"Write [{group}.NAME], and its settings below.")
        )
        return {}

    def _table(self, where: str, table: Any, kind: type[Any]) -> Any:
        """The settings of a table; None after an error, which is added to `findings`."""
        try:
            if not isinstance(table, dict):
                raise PipelineError("It is not a table.", f"Write [{where}], and its settings below.")
            return read_settings(kind, with_variables(table, self.environment), f"[{where}]")
        except PipelineError as error:
            self._report(where, error)
            return None

    def _report(self, where: str, error: PipelineError) -> None:
        line = self.lines.get(where)
        place = str(self.path) + (f", line {line}" if line else "")
        is_named = not where or error.what.startswith(f"[{where}]")
        what = error.what if is_named else f"[{where}]: {error.what}"
        self.findings.append(Finding(place, what, error.remedy))


_NAME_RULE = "Use letters, digits, `.`, `_` and `-`; the first must be a letter or a digit."


def with_variables(value: Any, environment: Mapping[str, str]) -> Any:
    """Replaces `${NAME}` in any text by the environment's value, and `$${` by `${`."""
    if isinstance(value, dict):
        return {key: with_variables(item, environment) for key, item in value.items()}
    if isinstance(value, list):
        return [with_variables(item, environment) for item in value]
    if isinstance(value, str):
        return _VARIABLE.sub(lambda found: _variable(found, environment), value)
    return value


def _variable(found: re.Match[str], environment: Mapping[str, str]) -> str:
    name = found[2]
    if name is None:
        return "${"
    if name not in environment:
        raise PipelineError(
            f"The environment has no variable {name}, which the file uses as ${{{name}}}.",
            f"Set it before you start, or write $${{{name}}} for the text ${{{name}}} itself.",
        )
    return environment[name]


def as_text(value: Any) -> str:
    """As in a properties file: true, not True."""
    return str(value).lower() if isinstance(value, bool) else str(value)
