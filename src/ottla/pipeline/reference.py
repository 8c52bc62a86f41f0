"""Writes docs/pipeline/settings.md from the settings that the code declares."""

import dataclasses
import types
import typing
from collections.abc import Iterator
from dataclasses import MISSING, Field
from typing import Any

from ottla.pipeline.config import RunSettings, SparkSettings, TopicSettings, WritingSettings
from ottla.pipeline.settings import key_of
from ottla.pipeline.stage import ClusterSettings
from ottla.pipeline.stage_registry import STAGE_CLASSES, load_stage_class

_HEAD = """\
# Settings of a pipeline

Every table and every setting of a `pipeline.toml`. `ottla pipeline reference` writes this page from the code.
[pipeline.md](../pipeline.md) shows how they go together.

`${NAME}` in any text is replaced by the environment variable, so that the file needs no secrets; `$${` stands for
`${`. Relative paths are relative to the folder of the file.

`name`, at the top of the file, is the pipeline's name. The stages write exactly once under an id that is made of it, so
do not change it later. The default is the name of the folder.
"""
_RUN = """\
Every stage also has this.
"""
_WRITING = """\
Every stage that writes topics also has these. Set them after the sink rejected the stage; the error says to what. They
may stay in the file, because each names only one query or one plan. See [the sink](../exactly-once-sink.md).
"""
_TYPE_NAMES = {str: "text", int: "whole number", float: "number", bool: "true or false", Any: "any"}


def reference_markdown() -> str:
    parts = [
        _HEAD,
        _section("[cluster]", ClusterSettings),
        _section("[spark]", SparkSettings),
        _section("[topics.NAME]", TopicSettings),
    ]
    parts += [_section(title, kind) for title, kind in stage_sections()]
    parts.append(_section("[sources.NAME], [transforms.NAME] and [sinks.NAME]", RunSettings, _RUN))
    parts.append(_section("[sources.NAME] and [transforms.NAME]", WritingSettings, _WRITING))
    return "\n".join(parts)


def stage_sections() -> Iterator[tuple[str, type[Any]]]:
    for group, kinds in STAGE_CLASSES.items():
        for kind in kinds:
            title = f"[{group}.NAME]" + (f', kind = "{kind}"' if len(kinds) > 1 or group == "sinks" else "")
            yield title, load_stage_class(group, kind)[1].Settings


def _section(title: str, kind: type[Any], *text: str) -> str:
    hints = typing.get_type_hints(kind)
    rows = [
        f"| `{key_of(field)}` | {type_name(hints[field.name])} | {default_of(field)} | {_meaning_of(field)} |"
        for field in dataclasses.fields(kind)
    ]
    return "\n".join(
        [
            f"## `{title}`",
            "",
            *text,
            "| setting | type | default | what it does |",
            "| --- | --- | --- | --- |",
            *rows,
            "",
        ]
    )


def type_name(hint: Any) -> str:
    arguments = [item for item in typing.get_args(hint) if item not in (types.NoneType, Ellipsis)]
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(type_name(item) for item in arguments)
    if origin is tuple:
        return f"list of {type_name(arguments[0])}"
    if origin is dict:
        return "table"
    return _TYPE_NAMES.get(hint, str(hint))


def default_of(field: Field[Any]) -> str:
    if field.default_factory is not MISSING:
        value = field.default_factory()
    elif field.default is not MISSING:
        value = field.default
    else:
        return "must be given"
    return "none" if value in (None, "", (), [], {}) and value is not False else f"`{_toml_of(value)}`"


def _toml_of(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    if isinstance(value, tuple | list):
        return "[" + ", ".join(_toml_of(item) for item in value) + "]"
    return str(value)


def _meaning_of(field: Field[Any]) -> str:
    choices = field.metadata.get("choices") or ()
    listed = f" ({', '.join(f'`{choice}`' for choice in choices)})" if choices else ""
    doc = str(field.metadata["doc"]).replace("|", "\\|").rstrip(".")
    begins_with_choice = doc.partition(":")[0] in choices
    return (doc if begins_with_choice else doc[:1].upper() + doc[1:]) + listed
