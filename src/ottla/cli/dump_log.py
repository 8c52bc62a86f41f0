"""`ottla dump-log`: shows the contents of files of a data directory."""

import base64
from typing import Annotated, Any

import typer

from ottla.cli.options import AsJson
from ottla.cli.output import CommandError, print_json

_DAMAGED = 1


def dump_log(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...", help="A .log, an index, a snapshot or a checkpoint of a data directory."
        ),
    ],
    records: Annotated[bool, typer.Option("--records", help="Also the records of each batch.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show batches, records, index entries, producer states and checkpoints, of Ottla's files and of Kafka's.

    The exit code is 1 if a file is damaged.
    """
    from ottla.env.real_disk import RealDisk
    from ottla.storage.dump import UnknownFileError, dump_file

    damaged = False
    for path in files:
        if not as_json:
            print(path)
        try:
            for entry in dump_file(RealDisk(), path, records=records):
                damaged |= entry.get("kind") == "damage" or entry.get("is_valid") is False
                if as_json:
                    print_json({"file": path, **_jsonable(entry)})
                else:
                    print(_line(entry))
        except UnknownFileError as error:
            raise CommandError(str(error)) from None
        except BrokenPipeError:
            raise
        except OSError as error:
            raise CommandError(f"{path} cannot be read: {error.strerror}") from None
    if damaged:
        raise typer.Exit(_DAMAGED)


def _line(entry: dict[str, Any]) -> str:
    kind = entry["kind"]
    indent = "    " if kind == "record" else "  "
    fields = " ".join(f"{name}={_text(value)}" for name, value in entry.items() if name != "kind")
    return f"{indent}{kind}: {fields}"


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_text(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}={_text(item)}" for name, item in value.items()) + "}"
    return "null" if value is None else str(value)


def _jsonable(value: Any) -> Any:
    """Bytes as text, or in base64 under NAME_base64, as `ottla consume --json` writes them."""
    if isinstance(value, dict):
        return dict(_field(name, item) for name, item in value.items())
    if isinstance(value, list | tuple):
        return [_jsonable(item) for item in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _field(name: str, value: Any) -> tuple[str, Any]:
    if isinstance(value, bytes):
        try:
            return name, value.decode("utf-8")
        except UnicodeDecodeError:
            return f"{name}_base64", base64.b64encode(value).decode("ascii")
    return name, _jsonable(value)
