"""What the tidy tests look at: the files of the repository and the functions in them."""

import ast
import subprocess
from collections.abc import Iterator
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
    """Every file that is tracked, or would be: what git ignores is left out."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"this is no git checkout, so its files cannot be told from others: {error}")
    return tuple(sorted(name for name in listed.stdout.splitlines() if (ROOT / name).is_file()))


def python_files(*folders: str) -> list[str]:
    return [name for name in files() if name.endswith(".py") and name.startswith(folders)]


def text(name: str) -> str:
    """The text of a file, "" where it is not text."""
    data = (ROOT / name).read_bytes()
    return "" if b"\0" in data else data.decode(errors="replace")


@cache
def tree(name: str) -> ast.Module:
    return ast.parse(text(name), filename=name)


def functions(name: str) -> Iterator[Function]:
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield Function(node.name, name, (node.end_lineno or node.lineno) - node.lineno + 1)
