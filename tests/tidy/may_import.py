"""The column "may import" of docs/ARCHITECTURE.md, made from the import contracts in pyproject.toml.

`python -m tests.tidy.may_import` writes it; test_architecture.py checks it.
"""

import re
import tomllib
from typing import Any

from tests.tidy.repository import ROOT

ARCHITECTURE = ROOT / "docs" / "ARCHITECTURE.md"
ROW = re.compile(r"^(\| `(\w+)/` \|.*\|)[^|]*\|$", re.MULTILINE)
PACKAGE = re.compile(r"ottla\.(\w+)")


def contracts() -> list[dict[str, Any]]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        found: list[dict[str, Any]] = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    return found


def layers() -> list[list[str]]:
    """The packages, highest layer first. Packages of one layer may not import each other."""
    (contract,) = (contract for contract in contracts() if contract.get("containers") == ["ottla"])
    return [[name.strip() for name in layer.split("|")] for layer in contract["layers"]]


def forbidden_to(package: str) -> set[str]:
    found: set[str] = set()
    for contract in contracts():
        if contract["type"] == "forbidden" and f"ottla.{package}" in contract["source_modules"]:
            matches = (PACKAGE.fullmatch(name) for name in contract["forbidden_modules"])
            found |= {match[1] for match in matches if match}
    return found


def may_import(package: str) -> list[str]:
    """The packages that no contract forbids to this one, highest layer first."""
    depth = next(number for number, layer in enumerate(layers()) if package in layer)
    below = [name for layer in layers()[depth + 1 :] for name in layer]
    return [name for name in below if name not in forbidden_to(package)]


def cell(package: str) -> str:
    return ", ".join(f"`{name}`" for name in may_import(package)) or "nothing of ours"


def with_column(page: str) -> str:
    """The page with the column as the contracts have it."""
    packages = {name for layer in layers() for name in layer}
    return ROW.sub(lambda row: f"{row[1]} {cell(row[2])} |" if row[2] in packages else row[0], page)


if __name__ == "__main__":
    ARCHITECTURE.write_text(with_column(ARCHITECTURE.read_text()))
