"""Loads the logic of a transform: a function in a Python file, or a query in a SQL file."""

import difflib
import hashlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from ottla.pipeline.errors import PipelineError

_VIEW = "raw"

Logic = Callable[[DataFrame], DataFrame]


def load_function(folder: Path, reference: str, options: Mapping[str, Any]) -> Logic:
    """The function of `FILE.py:FUNCTION`. The options are its keyword arguments."""
    file, separator, name = reference.rpartition(":")
    if not separator or not file.endswith(".py") or not name.isidentifier():
        raise PipelineError(
            f"`function` is {reference!r}.", "Write FILE.py:FUNCTION, as in transforms.py:clean."
        )
    module = load_module(folder / file)
    function = getattr(module, name, None)
    if function is None:
        raise _no_function(module, file, name)
    if not callable(function):
        raise PipelineError(
            f"`{name}` in {file} is {type(function).__name__}, not a function.", "Name a function."
        )
    try:
        inspect.signature(function).bind(None, **options)
    except TypeError as error:
        raise PipelineError(
            f"The function `{name}` in {file} cannot be called with one DataFrame and the options "
            f"{sorted(options) or 'none'}: {error}.",
            "Fix its parameters, or the table `options`.",
        ) from None
    return lambda raw: _run_logic(function, raw, options, f"the function `{name}` in {file}")


def load_module(path: Path) -> ModuleType:
    """Reads the file as a module of its own. Its functions are pickled by value, for the executors."""
    name = f"ottla_transform_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PipelineError(
            f"The file of the transform {path} cannot be read: {error}.", "Fix the path in `function`."
        ) from None
    spec = importlib.util.spec_from_loader(name, loader=None, origin=str(path))
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    module.__file__ = str(path)
    try:
        code = compile(source, str(path), "exec")
        sys.modules[name] = module
        exec(code, module.__dict__)
    except SyntaxError as error:
        raise PipelineError(
            f"{path}, line {error.lineno}: {error.msg}.", "Fix that line: Python cannot parse the file."
        ) from None
    except Exception as error:
        raise PipelineError(
            f"{path}{_line_in(error, str(path))} raised {type(error).__name__}: {error}.",
            "Fix it: the file must load by itself.",
        ) from None
    # An executor cannot import the module.
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return module


def load_sql(path: Path, options: Mapping[str, Any]) -> Callable[[SparkSession, DataFrame], DataFrame]:
    """The query of a file over the view `raw`. The options are its parameters."""
    try:
        query = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise PipelineError(
            f"The query's file {path} cannot be read: {error}.", "Fix the path in `sql`."
        ) from None
    if not query:
        raise PipelineError(f"The query's file {path} is empty.", f"Write a SELECT ... FROM {_VIEW} into it.")

    def run(spark: SparkSession, raw: DataFrame) -> DataFrame:
        raw.createOrReplaceTempView(_VIEW)
        try:
            what = f"the query in {path.name}"
            return _run_logic(lambda _: spark.sql(query, args=dict(options)), raw, {}, what)
        finally:
            # The query of another transform must not see this view.
            spark.catalog.dropTempView(_VIEW)

    return run


def _run_logic(
    function: Callable[..., Any], raw: DataFrame, options: Mapping[str, Any], what: str
) -> DataFrame:
    """The rows that the logic returns for `raw`. Raises PipelineError if it fails or returns something else.

    `what` names the logic in errors.
    """
    try:
        rows = function(raw, **options)
    except PipelineError:
        raise
    except PySparkException as error:
        raise PipelineError(
            f"Spark rejects {what}: {str(error).strip().splitlines()[0]}",
            "Fix it, and start the transform again.",
        ) from error
    except Exception as error:
        raise PipelineError(
            f"{_capitalized(what)} raised {type(error).__name__}: {error}.",
            "Fix it, and start the transform again.",
        ) from error
    if not isinstance(rows, DataFrame):
        raise PipelineError(f"{_capitalized(what)} returned {type(rows).__name__}.", "Return a DataFrame.")
    if raw.isStreaming and not rows.isStreaming:
        raise PipelineError(
            f"{_capitalized(what)} returned rows that do not come from the stream.",
            "Make them from the rows that it gets.",
        )
    return rows


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def _no_function(module: ModuleType, file: str, name: str) -> PipelineError:
    names = [key for key, value in vars(module).items() if inspect.isfunction(value)]
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"Did you mean `{close[0]}`?" if close else f"It has: {', '.join(names) or 'none'}."
    return PipelineError(f"{file} has no function `{name}`.", hint)


def _line_in(error: Exception, path: str) -> str:
    """The line of the file that raised the error, for the message."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    return f", line {lines[-1]}," if lines else ""
