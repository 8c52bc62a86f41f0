"""The documentation names only what exists: functions, files, folders and pages."""

import ast
import re
import subprocess
import sys
from functools import cache

import pytest
from tests.tidy.documentation import (
    METHOD,
    PATH,
    decisions,
    journeys,
    links,
    pages,
    prose,
    references,
    title,
)
from tests.tidy.repository import ROOT, files, folders, is_defined, module_file, python_files, tree

JOURNEY_FUNCTIONS_MIN = 5
# Pages that speak of our code; the others are for users, and name folders and files of theirs.
ABOUT_THE_CODE = ("docs/ARCHITECTURE", "docs/GLOSSARY", "docs/decisions/", "docs/journeys/", "CONTRIBUTING")


@pytest.mark.parametrize("page", pages())
def test_every_function_that_a_page_names_exists(page: str) -> None:
    missing = [
        f"`{module}:{name}`" if name else f"`{module}`"
        for module, name in references(page)
        if module_file(module) is None or (name and not is_defined(module, name))
    ]
    assert missing == []


@pytest.mark.parametrize("page", [page for page in pages() if page.startswith(ABOUT_THE_CODE)])
def test_every_method_that_a_page_about_the_code_names_exists(page: str) -> None:
    missing = [
        f"`{owner}.{name}`"
        for owner, name in METHOD.findall(prose(page))
        if not any(is_defined(module, f"{owner}.{name}") for module in modules_with(owner))
    ]
    assert missing == []


@pytest.mark.parametrize("page", pages())
def test_every_file_and_folder_that_a_page_names_exists(page: str) -> None:
    named = [path.rstrip("/") for path in PATH.findall(prose(page))]
    if not page.startswith(ABOUT_THE_CODE):
        ours = {name for name in folders() if "/" not in name}
        named = [path for path in named if path.partition("/")[0] in ours]
    assert [path for path in named if not exists(path)] == []


@pytest.mark.parametrize("page", pages())
def test_every_link_of_a_page_leads_somewhere(page: str) -> None:
    assert [target for target in links(page) if target not in files() and target not in folders()] == []


@pytest.mark.parametrize("page", journeys())
def test_a_journey_names_the_functions_on_its_way(page: str) -> None:
    named = [name for _, name in references(page) if name]
    assert len(named) >= JOURNEY_FUNCTIONS_MIN


def test_the_map_links_to_every_journey() -> None:
    assert set(journeys()) <= set(links("docs/ARCHITECTURE.md"))


def test_the_index_lists_every_decision_by_its_title() -> None:
    index = prose("docs/decisions/README.md")
    lines = [f"[{title(page)}]({page.removeprefix('docs/decisions/')})" for page in decisions()]
    assert [line for line in lines if line not in index] == []


def exists(path: str) -> bool:
    """From the root, from a package, or as the end of the path of a file or folder (`archive/store.py`)."""
    known = (*files(), *folders())
    return any(name == path or name.endswith(f"/{path}") for name in known)


@cache
def modules_with(name: str) -> list[str]:
    return [
        path.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for path in python_files("src/ottla/")
        if any(isinstance(node, ast.ClassDef) and node.name == name for node in tree(path).body)
    ]


def test_the_tables_of_the_readme_are_those_of_the_results_it_names() -> None:
    """All lines of the first are from one whole run; the cluster may have results of its own."""
    readme = (ROOT / "README.md").read_text()
    named = re.findall(r"\((bench/results/[\d-]+(?:cluster)?)\.md\)", readme)
    assert named
    # A process of its own: the tests have another module of the name `bench`.
    command = [sys.executable, "-m", "bench.readme", *(f"{name}.json" for name in named)]
    tables = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert tables in readme
