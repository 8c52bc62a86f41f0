"""docs/commands.md names every command and every option."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from ottla.cli.app import app
from ottla.cli.serve import parser

PAGE = Path(__file__).parents[3] / "docs" / "commands.md"
SHARED = {"--bootstrap", "-b", "--help", "-h", "--install-completion", "--show-completion"}


def sections() -> dict[str, str]:
    """The text below each heading, by heading."""
    parts = re.split(r"^## (.+)$", PAGE.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def commands(command: Any, path: str = "ottla") -> Iterator[tuple[str, Any]]:
    children = getattr(command, "commands", None)
    if not children:
        yield path, command
        return
    for name, child in children.items():
        yield from commands(child, f"{path} {name}")


def test_every_command_and_option_is_documented() -> None:
    documented = sections()
    found = dict(commands(typer.main.get_command(app)))
    assert set(found) == set(documented)
    for path, command in found.items():
        for param in command.params:
            for option in (*param.opts, *param.secondary_opts):
                if option.startswith("-") and option not in SHARED:
                    assert re.search(rf"`{option}[` ]", documented[path]), f"{path} {option}"


def test_every_option_of_serve_is_documented() -> None:
    text = sections()["ottla serve"]
    options = [option for action in parser()._actions for option in action.option_strings]
    for option in set(options) - SHARED:
        assert f"`{option} " in text or f"`{option}`" in text, option


def test_every_documented_option_exists() -> None:
    found = dict(commands(typer.main.get_command(app)))
    for path, text in sections().items():
        options = {option for param in found[path].params for option in (*param.opts, *param.secondary_opts)}
        if path == "ottla serve":
            options |= {option for action in parser()._actions for option in action.option_strings}
        for option in re.findall(r"^\| `(--[a-z-]+)", text, flags=re.MULTILINE):
            assert option in options, f"{path} {option}"
