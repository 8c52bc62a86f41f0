"""What the tidy tests read: the files of the repository, the functions in them, and the names that modules define."""

import ast
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "ottla"


@dataclass(frozen=True, slots=True)
class Function:
    name: str
    path: str
    lines: int


@cache
def files() -> tuple[str, ...]:
    """Every file that git tracks or would track; ignored files are left out."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        reason = f"this is not a git checkout, so the files of the repository are not known: {error}"
        pytest.skip(reason, allow_module_level=True)
    return tuple(sorted(name for name in listed.stdout.splitlines() if (ROOT / name).is_file()))


@cache
def folders() -> frozenset[str]:
    """Every folder that has a file of the repository, without a slash at its end."""
    return frozenset(str(parent) for name in files() for parent in Path(name).parents if parent.name)


def python_files(*prefixes: str) -> list[str]:
    return [name for name in files() if name.endswith(".py") and name.startswith(prefixes)]


def text(name: str) -> str:
    """The text of a file; "" if it is binary."""
    data = (ROOT / name).read_bytes()
    return "" if b"\0" in data else data.decode(errors="replace")


@cache
def tree(name: str) -> ast.Module:
    return ast.parse(text(name), filename=name)


def functions(name: str) -> Iterator[Function]:
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield Function(node.name, name, (node.end_lineno or node.lineno) - node.lineno + 1)


def module_file(module: str) -> str | None:
    """The file of a module of ours, as `files` has it."""
    path = f"src/{module.replace('.', '/')}"
    return next((name for name in (f"{path}.py", f"{path}/__init__.py") if name in files()), None)


def is_defined(module: str, name: str) -> bool:
    """Whether a module has this name, such as `encode` or `Log.append`. Nothing is imported: Spark may be missing."""
    scope, *members = name.split(".")
    found = _definition(module, scope)
    for member in members:
        if found is None or not isinstance(found[1], ast.ClassDef):
            return False
        found = _member(found[0], found[1], member)
    return found is not None


Definition = tuple[str, ast.AST]


def _definition(module: str, name: str) -> Definition | None:
    """The module that defines a name which this module has, and the statement that does; imports are followed."""
    path = module_file(module)
    if path is None:
        return None
    for statement in _statements(tree(path).body):
        if isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                if (alias.asname or alias.name) == name:
                    origin = _definition(statement.module or "", alias.name)
                    return origin or (module, statement)
        elif name in _names(statement):
            return module, statement
    return None


def _member(module: str, owner: ast.ClassDef, name: str) -> Definition | None:
    for statement in _statements(owner.body):
        if name in _names(statement):
            return module, statement
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(statement):
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and node.attr == name:
                    return module, node
    for base in owner.bases:
        plain = base.value if isinstance(base, ast.Subscript) else base
        found = _definition(module, plain.id) if isinstance(plain, ast.Name) else None
        if found is not None and isinstance(found[1], ast.ClassDef):
            inherited = _member(found[0], found[1], name)
            if inherited is not None:
                return inherited
    return None


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module or class, also those under `if` and `try`."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If | ast.Try):
            yield from _statements([*statement.body, *statement.orelse])


def _names(statement: ast.stmt) -> set[str]:
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
        case ast.Assign(targets=targets):
            return {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}
    return set()
