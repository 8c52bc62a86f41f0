"""What the documentation names: modules and functions, paths, links and headings."""

import re
from functools import cache
from pathlib import PurePosixPath

from tests.tidy.repository import files, text

# `ottla.storage.log:Log.append`; the part after the colon is optional.
REFERENCE = re.compile(r"`(ottla(?:\.\w+)+)(?::([A-Za-z_][\w.]*))?`")
METHOD = re.compile(r"`([A-Z]\w+)\.([a-z_]\w*)(?:\(\))?`")
# Upper case stands for a name that varies, as in `TOPIC/_delta_log`.
PATH = re.compile(r"`((?:[a-z_.][\w.-]*/)+[\w.-]*)`")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s#]+)(?:#[^)\s]*)?\)")
FENCE = re.compile(r"^( *)(```|~~~).*?^\1\2", re.MULTILINE | re.DOTALL)


@cache
def pages() -> tuple[str, ...]:
    return tuple(name for name in files() if name.endswith(".md"))


def journeys() -> list[str]:
    return [name for name in pages() if name.startswith("docs/journeys/")]


def decisions() -> list[str]:
    return [name for name in pages() if re.match(r"docs/decisions/\d{4}-", name)]


@cache
def prose(page: str) -> str:
    """The text of a page without its code blocks."""
    return FENCE.sub("", text(page))


def references(page: str) -> list[tuple[str, str]]:
    """(module, name in it or "") for each thing that a page names.

    Elsewhere than on the map and the journeys, a name without a colon may be a config's (`ottla.log.format`).
    """
    found: list[tuple[str, str]] = REFERENCE.findall(prose(page))
    return [item for item in found if item[1] or page.startswith(("docs/ARCHITECTURE", "docs/journeys/"))]


def links(page: str) -> list[str]:
    """The files of the repository that a page links to, as paths from its root."""
    targets = [target for target in LINK.findall(prose(page)) if "://" not in target]
    return [_normalized(PurePosixPath(page).parent / target) for target in targets]


def title(page: str) -> str:
    return text(page).partition("\n")[0].removeprefix("#").strip()


def _normalized(path: PurePosixPath) -> str:
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)
