"""Options that many commands share."""

from collections.abc import Callable, Iterable
from typing import Annotated, TypeVar

import typer

from ottla.cli.output import print_error

_T = TypeVar("_T")

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT",
        envvar="OTTLA_BOOTSTRAP",
        help="Addresses of brokers, separated by commas.",
    ),
]
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object per line, for programs.")]
Acks = Annotated[str, typer.Option("--acks", metavar="0|1|all", help="The acknowledgements to wait for.")]
Compression = Annotated[
    str, typer.Option("--compression", metavar="CODEC", help="none, gzip, snappy, lz4 or zstd.")
]
ACKS = ("0", "1", "all")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def check_choice(option: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise typer.BadParameter(f"{value!r} is not one of {', '.join(allowed)}", param_hint=option)
    return value


def parse_pairs(option: str, items: list[str]) -> dict[str, str]:
    """Parses NAME=VALUE arguments."""
    result = {}
    for item in items:
        name, separator, value = item.partition("=")
        if not separator or not name:
            raise typer.BadParameter(f"{item!r}: expected NAME=VALUE", param_hint=option)
        result[name] = value
    return result


def check_choices(option: str, given: list[str] | None, allowed: Iterable[str]) -> list[str]:
    """The given names in the spelling of `allowed`; upper and lower case are the same."""
    by_lower = {name.lower(): name for name in allowed}
    for name in given or []:
        if name.lower() not in by_lower:
            raise typer.BadParameter(
                f"{name!r} is not one of {', '.join(by_lower.values())}", param_hint=option
            )
    return [by_lower[name.lower()] for name in given or []]


def parse_option(option: str, parse: Callable[[str], _T], text: str) -> _T:
    try:
        return parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def config_refused(errors: Iterable[str]) -> typer.Exit:
    """Prints the errors of a configuration. The caller raises the result, as for wrong usage."""
    print_error("\n  ".join(["the configuration is refused:", *errors]))
    return typer.Exit(2)
