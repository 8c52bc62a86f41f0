"""The settings of a spool directory: `[sources.NAME]` with kind = "spooldir", or Spark options by the same names."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.ingest.spooldir.record_format import RecordFormat
from ottla.pipeline.settings import read_settings, setting

_IGNORED = [".*", "*.tmp", "*.temp", "*.part", "*.partial", "*.swp", "*~"]
_HEX = "hex:"
# The headers and the batch add this to a record's value: a path can have 4,096 bytes, as key and as header.
RECORD_OVERHEAD_BYTES = 10_000


@dataclass(frozen=True)
class SpoolDirSettings:
    folder: str = setting(
        "the folder whose complete files are read; a local or mounted path that every executor sees"
    )
    topic: str = setting("the topic that gets the records")
    include: tuple[str, ...] = setting("the files to take, as shell patterns of their names", ("*",))
    ignore: tuple[str, ...] = setting(
        "the files and folders to leave alone, as shell patterns of their names", tuple(_IGNORED)
    )
    recursive: bool = setting("also take the files of subfolders", False)
    settle_s: float = setting("take a file only when it has not changed for so many seconds", 1.0)
    format: str = setting(
        "what a record is: a line, the bytes between delimiters, or a whole file",
        "lines",
        choices=("lines", "delimiter", "file"),
    )
    delimiter: str = setting('for format "delimiter": its text, or its bytes as "hex:1eff"', "")
    carriage_return: str = setting(
        'for format "lines": keep the \\r of a line that ends in \\r\\n, or cut it',
        "keep",
        choices=("keep", "cut"),
    )
    key: str = setting(
        "the key of the records: none, or the name of their file", "none", choices=("none", "file")
    )
    max_record_bytes: int = setting(
        "a longer record is an error; the topic's max.message.bytes must allow it", 1_000_000
    )
    max_bytes_per_batch: int = setting("the most bytes of files that a batch reads", 256 * 1024 * 1024)
    split_bytes: int = setting(
        "the bytes of files that a task reads; several tasks read a larger file", 16 * 1024 * 1024
    )
    after: str = setting(
        "what happens to a file when its records are committed",
        "rename",
        choices=("rename", "move", "delete", "keep"),
    )
    done_suffix: str = setting(
        'for after = "rename": the suffix that the name gets; files with it are never taken', ".done"
    )
    done_folder: str = setting('for after = "move": the folder to move to, on the same file system', "")
    log: str = setting(
        "the folder of the log of taken files, a local or mounted path; inside the checkpoint if not given",
        "",
    )

    def delimiter_bytes(self) -> bytes:
        if not self.delimiter.startswith(_HEX):
            return self.delimiter.encode()
        try:
            return bytes.fromhex(self.delimiter.removeprefix(_HEX))
        except ValueError:
            raise PipelineError(
                f"The delimiter {self.delimiter!r} is not hexadecimal.", 'Give it as in "hex:1eff".'
            ) from None

    def record_format(self) -> RecordFormat:
        """The format of files that are taken from now on."""
        delimiter = {"lines": b"\n", "file": b""}.get(self.format, self.delimiter_bytes())
        return RecordFormat(delimiter, self.carriage_return == "cut", self.key == "file")


def check_settings(settings: SpoolDirSettings) -> None:
    """Raises PipelineError for settings that contradict each other."""
    if settings.format == "delimiter" and not settings.delimiter_bytes():
        raise PipelineError(
            'The format is "delimiter", but there is no `delimiter`.',
            'Give one, as in "\\u001e" or "hex:1e".',
        )
    if settings.format != "delimiter" and settings.delimiter:
        raise PipelineError(
            f"A `delimiter` is given, but the format is {settings.format!r}.",
            'Set format = "delimiter", or remove it.',
        )
    if settings.carriage_return == "cut" and settings.format != "lines":
        raise PipelineError(
            f'`carriage_return` is "cut", but the format is {settings.format!r}.',
            'Set format = "lines", or remove it.',
        )
    if settings.after == "move" and not settings.done_folder:
        raise PipelineError(
            '`after` is "move", but there is no `done_folder`.', "Name the folder to move files to."
        )
    if settings.after == "rename" and not settings.done_suffix.strip("/"):
        raise PipelineError('`after` is "rename", but `done_suffix` is empty.', 'Give one, as in ".done".')
    for name in ("max_record_bytes", "max_bytes_per_batch", "split_bytes"):
        if getattr(settings, name) < 1:
            raise PipelineError(f"`{name}` is {getattr(settings, name)}.", "Give a number of bytes above 0.")


def to_options(settings: SpoolDirSettings) -> dict[str, str]:
    """The settings as options of `format("ottla-spooldir")`."""
    return {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in dataclasses.asdict(settings).items()
    }


def from_options(options: Mapping[str, str]) -> SpoolDirSettings:
    """Options are text: a list is given as JSON, or as one pattern. `path`, from `load(path)`, is the folder."""
    types = {field.name: field.type for field in dataclasses.fields(SpoolDirSettings)}
    table: dict[str, Any] = {"topic": ""}
    for name, text in options.items():
        name = "folder" if name == "path" else name
        table[name] = text if types.get(name, str) is str else _parse(name, text)
    settings = read_settings(SpoolDirSettings, table, 'format("ottla-spooldir")')
    check_settings(settings)
    return settings


def _parse(name: str, text: str) -> Any:
    if name in ("include", "ignore") and not text.startswith("["):
        return [text]
    try:
        return json.loads(text)
    except ValueError:
        return text
