"""The map is true: the folders it lists are those that exist, and the functions that the journeys name are there."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.tidy.repository import ROOT, SOURCE, files

ARCHITECTURE = ROOT / "docs" / "ARCHITECTURE.md"
JOURNEYS = ("fetch", "metadata", "produce")
FOLDER_ROW = re.compile(r"^\|\s*`([\w/]+)/`\s*\|", re.MULTILINE)
REFERENCE = re.compile(r"`(ottla(?:\.\w+)+)(?::([A-Za-z_][\w.]*))?`")


def references() -> list[tuple[str, str, str]]:
    """(page, module, name in it or "") for each thing that the documentation names.

    Elsewhere than on the map and the journeys, a name without a colon may be a config's (`ottla.log.format`).
    """
    pages = [name for name in files() if name.startswith("docs/") and name.endswith(".md")]
    found = [(page, *names) for page in pages for names in REFERENCE.findall((ROOT / page).read_text())]
    return [item for item in found if item[2] or item[0].startswith(("docs/ARCHITECTURE", "docs/journeys/"))]


def test_the_folder_table_lists_the_folders_that_exist() -> None:
    listed = set(FOLDER_ROW.findall(ARCHITECTURE.read_text()))
    present = {name.split("/")[2] for name in files() if re.match(r"src/ottla/\w+/", name)}
    assert {name for name in listed if "/" not in name and not (ROOT / name).is_dir()} == present
    assert [name for name in listed if not (SOURCE / name).is_dir() and not (ROOT / name).is_dir()] == []


@pytest.mark.parametrize("journey", JOURNEYS)
def test_a_journey_names_the_functions_on_its_way(journey: str) -> None:
    pages = [name for name in files() if re.fullmatch(rf"docs/journeys/.*{journey}.*\.md", name)]
    assert pages, f"docs/journeys/ has no page about {journey}"
    named = [name for page, _, name in references() if page in pages and name]
    assert len(named) >= 5, f"{pages} name only {named}"


def test_what_the_documentation_names_exists() -> None:
    missing = [
        f"{page}: `{module}:{name}`" for page, module, name in references() if not _exists(module, name)
    ]
    assert missing == []


def test_each_floor_imports_only_from_below() -> None:
    linter = Path(sys.executable).parent / "lint-imports"
    done = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def _exists(module: str, name: str) -> bool:
    try:
        thing: object = importlib.import_module(module)
    except ImportError:
        return False
    for part in name.split(".") if name else []:
        if not hasattr(thing, part) and part not in getattr(thing, "__annotations__", {}):
            return False
        thing = getattr(thing, part, None)
    return True
