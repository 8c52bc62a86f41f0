"""Identifies the code of a Python function: its instructions and constants, and those of the functions that it calls.

Two runs of one program give one text, whatever their comments, line numbers and addresses are. Of installed packages
only names are included: their code changes with their version.
"""

import functools
import hashlib
import re
import sys
import sysconfig
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

_ADDRESS = re.compile(r"0x[0-9a-f]+")
_INSTALLED = tuple(
    str(Path(path).resolve())
    for name, path in sysconfig.get_paths().items()
    if name in ("stdlib", "platstdlib", "purelib", "platlib")
)


def code_fingerprint(function: Any) -> str:
    return hashlib.sha256(_Walk().text(function).encode()).hexdigest()[:16]


class _Walk:
    """Turns a function into text. An object that was seen before is a number, so cycles end."""

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}
        # Keeps the objects alive: the id of a dead one may be used again.
        self._objects: list[Any] = []

    def text(self, value: Any) -> str:
        if value is None or isinstance(value, bool | int | float | complex | str | bytes):
            return f"{type(value).__name__} {value!r}"
        if isinstance(value, tuple):
            return f"({', '.join(map(self.text, value))})"
        if isinstance(value, CodeType):
            return self._code(value)
        if id(value) in self._seen:
            return f"<{self._seen[id(value)]}>"
        self._seen[id(value)] = len(self._seen)
        self._objects.append(value)
        return self._object(value)

    def _object(self, value: Any) -> str:
        if isinstance(value, list):
            return f"[{', '.join(map(self.text, value))}]"
        if isinstance(value, set | frozenset):
            return f"{{{', '.join(sorted(map(self.text, value)))}}}"
        if isinstance(value, dict):
            return f"{{{', '.join(f'{self.text(key)}: {self.text(item)}' for key, item in value.items())}}}"
        if isinstance(value, FunctionType):
            return self._function(value)
        if isinstance(value, MethodType):
            return f"method {self.text(value.__func__)} of {self.text(value.__self__)}"
        if isinstance(value, functools.partial):
            return f"partial {self.text(value.func)} {self.text(value.args)} {self.text(value.keywords)}"
        if isinstance(value, ModuleType | BuiltinFunctionType):
            return f"{type(value).__name__} {value.__name__}"
        if isinstance(value, type):
            return self._class(value)
        if hasattr(value, "__wrapped__"):  # such as functools.cache
            return f"{type(value).__name__} {self.text(value.__wrapped__)}"
        if _is_installed(type(value).__module__):
            return _ADDRESS.sub("", repr(value))
        return f"{self.text(type(value))} {self.text(getattr(value, '__dict__', {}))}"

    def _function(self, function: FunctionType) -> str:
        # A decorator of an installed package holds the decorated function in a cell.
        cells = [_content(cell) for cell in function.__closure__ or ()]
        name = f"function {function.__module__}.{function.__qualname__} {self.text(cells)}"
        if _is_installed(function.__module__):
            return name
        names = sorted(_names_of(function.__code__))
        used = {name: function.__globals__[name] for name in names if name in function.__globals__}
        attributes = [
            getattr(module, name, None)
            for module in used.values()
            if isinstance(module, ModuleType) and not _is_installed(module.__name__)
            for name in names
        ]
        parts = (function.__code__, function.__defaults__, function.__kwdefaults__, used, attributes)
        return f"{name} {' '.join(map(self.text, parts))}"

    def _code(self, code: CodeType) -> str:
        parts = (code.co_code, code.co_consts, code.co_names, code.co_freevars, code.co_exceptiontable)
        return f"code {' '.join(map(self.text, parts))}"

    def _class(self, kind: type) -> str:
        name = f"class {kind.__module__}.{kind.__qualname__}"
        if _is_installed(kind.__module__):
            return name
        own = {
            key: item
            for key, item in sorted(vars(kind).items())
            if not key.startswith("__") or callable(item)
        }
        return f"{name} {self.text(kind.__bases__)} {self.text(own)}"


def _names_of(code: CodeType) -> set[str]:
    """The names that a function and the functions within it use."""
    inner = (item for item in code.co_consts if isinstance(item, CodeType))
    return {*code.co_names}.union(*map(_names_of, inner))


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None


def _is_installed(module: str | None) -> bool:
    """Whether a module is Python's or an installed package. One without a file was made by the program."""
    if module in sys.builtin_module_names:
        return True
    file = getattr(sys.modules.get(str(module)), "__file__", None)
    return file is not None and str(Path(file).resolve()).startswith(_INSTALLED)
