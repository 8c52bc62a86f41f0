"""Reads a table of a `pipeline.toml` into a dataclass whose fields hold the meaning, type and default of each setting.

A stage declares its settings with `setting(...)`. The reference in the documentation is made from the same fields.
"""

import dataclasses
import difflib
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, Field
from typing import Any, TypeVar

from ottla.pipeline.errors import PipelineError

_Settings = TypeVar("_Settings")

_TYPE_NAMES = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}


def setting(doc: str, default: Any = MISSING, *, choices: tuple[str, ...] = ()) -> Any:
    """A field of a settings dataclass. `doc` is its line in the reference. Without a default it must be set."""
    metadata = {"doc": doc, "choices": choices}
    if isinstance(default, dict | list):
        return dataclasses.field(default_factory=lambda: type(default)(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def read_settings(kind: type[_Settings], table: Mapping[str, Any], where: str) -> _Settings:
    """`table` as an instance of `kind`. `where` names the table in errors, as in `[sources.orders]`."""
    fields = {key_of(field): field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    hints = typing.get_type_hints(kind)
    for name in table:
        if name not in fields:
            raise unknown_setting(name, fields, where)
    for name, field in fields.items():
        if name not in table and field.default is MISSING and field.default_factory is MISSING:
            raise PipelineError(f"{where} has no `{name}`.", f"Add it: {field.metadata['doc']}")
    values = {}
    for name, value in table.items():
        field = fields[name]
        values[field.name] = _check_value(value, hints[field.name], field, where)
    return kind(**values)


def key_of(field: Field[Any]) -> str:
    """The field's name in the file: a Python keyword such as `from` is the field `from_`."""
    return field.name.rstrip("_")


def unknown_setting(name: str, known: Mapping[str, Any], where: str) -> PipelineError:
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"Did you mean `{close[0]}`?" if close else f"It knows: {', '.join(sorted(known))}."
    return PipelineError(f"{where} does not know the setting `{name}`.", hint)


def _check_value(value: Any, hint: Any, field: Field[Any], where: str) -> Any:
    choices = field.metadata.get("choices")
    if choices and value not in choices:
        raise PipelineError(
            f"{where}: `{key_of(field)}` is {value!r}.", f"Choose one of: {', '.join(map(str, choices))}."
        )
    return _convert(value, hint, f"{where}: `{key_of(field)}`")


def _convert(value: Any, hint: Any, what: str) -> Any:
    """TOML's value as the field's type. Lists become tuples and whole numbers floats; nothing else is converted."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        kinds = [kind for kind in arguments if kind is not types.NoneType]
        return _convert(value, kinds[0] if type(value) is kinds[0] else kinds[-1], what)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise PipelineError(f"{what} is {value!r}.", "Give a list, as in [1, 2].")
        return tuple(_convert(item, arguments[0], what) for item in value)
    if origin is dict:
        if not isinstance(value, Mapping):
            raise PipelineError(f"{what} is {value!r}.", "Give a table, as in { name = 1 }.")
        return {str(key): _convert(item, arguments[1], f"{what}, `{key}`") for key, item in value.items()}
    if hint is Any or type(value) is hint:
        return value
    if hint is float and type(value) is int:
        return float(value)
    raise PipelineError(f"{what} is {value!r}.", f"It takes {_TYPE_NAMES.get(hint, str(hint))}.")
