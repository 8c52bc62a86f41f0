"""docs/pipeline/recovery.md explains every error of the sink and of the archive, and no other."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "pipeline" / "recovery.md").read_text()
PIPELINE = ROOT / "src" / "ottla" / "pipeline"
# The heading of the section, and the folder whose errors it explains
SECTIONS = {"The sink": "spark/sink", "The archive": "archive"}
# `give_up` raises an error with the same arguments.
RAISERS = {"PipelineError", "RetriableError", "PermanentStageError", "give_up"}
VARIES = "…"


def shapes(node: ast.expr, known: dict[str, ast.expr]) -> Iterator[str]:
    """The text of an error, with VARIES for what an f-string fills in; nothing for a text that is a parameter."""
    if isinstance(node, ast.Constant):
        yield str(node.value)
    elif isinstance(node, ast.JoinedStr):
        yield "".join(part(value, known) for value in node.values)
    elif isinstance(node, ast.IfExp):
        yield from shapes(node.body, known)
        yield from shapes(node.orelse, known)
    elif isinstance(node, ast.Name) and node.id in known:
        yield from shapes(known[node.id], known)


def part(node: ast.expr, known: dict[str, ast.expr]) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    assert isinstance(node, ast.FormattedValue)
    filled = node.value
    if isinstance(filled, ast.Name) and isinstance(known.get(filled.id), ast.JoinedStr):
        return next(shapes(known[filled.id], known))
    return VARIES


def errors_in(source: str) -> Iterator[str]:
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef):
            continue
        known = {
            target.id: node.value
            for node in ast.walk(function)
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in RAISERS:
                yield from shapes(node.args[0], known)


def errors_of(folder: str) -> set[str]:
    found = {error for path in (PIPELINE / folder).rglob("*.py") for error in errors_in(path.read_text())}
    return {re.sub(rf"{VARIES}+", VARIES, " ".join(error.split())) for error in found}


def explained(section: str) -> list[str]:
    text = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| ``? ?(.+?) ?``? \|", text, re.MULTILINE)


def test_the_errors_of_a_file_are_found() -> None:
    source = (
        "def a(x):\n    what = f'{x} is'\n    raise PipelineError(f'{what} gone{x}{x}.', 'r')\n"
        "def b(x, what):\n    raise RetriableError(what, 'r')\n"
        "def c(x):\n    raise PermanentStageError('none' if x else f'some {x}', 'r')\n"
    )
    assert list(errors_in(source)) == ["… is gone…….", "none", "some …"]


@pytest.mark.parametrize("section", SECTIONS)
def test_every_error_is_explained_once_and_every_explained_error_exists(section: str) -> None:
    found, rows = errors_of(SECTIONS[section]), explained(section)
    assert len(found) > 10
    missing = "\n".join(sorted(found - set(rows)))
    assert not missing, f"add to the section {section} of docs/pipeline/recovery.md:\n{missing}"
    assert sorted(set(rows) - found) == []
    assert len(rows) == len(set(rows))
