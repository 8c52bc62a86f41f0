"""docs/ARCHITECTURE.md is true: its folders exist, and its imports are those that the contracts allow and hold."""

import re
import subprocess
import sys
from pathlib import Path

from tests.tidy.may_import import ARCHITECTURE, layers, with_column
from tests.tidy.repository import ROOT, files, folders

FOLDER_ROW = re.compile(r"^\| `([\w.]+)/` \|", re.MULTILINE)


def packages() -> set[str]:
    return {name.split("/")[2] for name in files() if re.match(r"src/ottla/\w+/", name)}


def test_the_tables_list_the_folders_that_exist() -> None:
    listed = set(FOLDER_ROW.findall(ARCHITECTURE.read_text()))
    top = {name for name in folders() if "/" not in name and name != "src"}
    assert listed == packages() | top


def test_the_layers_have_every_package() -> None:
    assert {name for layer in layers() for name in layer} == packages()


def test_the_column_may_import_follows_from_the_contracts() -> None:
    page = ARCHITECTURE.read_text()
    assert with_column(page) == page, "run `python -m tests.tidy.may_import`"


def test_the_import_contracts_hold() -> None:
    linter = Path(sys.executable).parent / "lint-imports"
    done = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
