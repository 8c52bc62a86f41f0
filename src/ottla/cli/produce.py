"""`ottla produce`: sends the lines of standard input as records."""

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.options import ACKS, CODECS, DEFAULT_BOOTSTRAP, Acks, Bootstrap, Compression, check_choice
from ottla.cli.output import CommandError, progress

if TYPE_CHECKING:
    from ottla.admin.json_records import OutgoingRecord


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")],
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", metavar="TEXT", help="The separator of key and value in a line."),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Lines are JSON records, as `ottla consume --json` writes them."),
    ] = False,
    acks: Acks = "all",
    compression: Compression = "none",
    rate: Annotated[
        float | None, typer.Option("--rate", metavar="N", min=0.001, help="Send at most N records a second.")
    ] = None,
    show_progress: Annotated[
        bool | None,
        typer.Option(
            "--progress/--no-progress", help="Show count and rate on stderr; default: at a terminal."
        ),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Send each line of standard input as a record.

    A JSON record has key, value, headers, partition and timestamp, all optional; key_base64 and value_base64 hold bytes
    that are not text. The command ends when every record is acknowledged.
    """
    check_choice("--acks", acks, ACKS)
    check_choice("--compression", compression, CODECS)
    if as_json and key_separator is not None:
        raise typer.BadParameter("--json and --key-separator exclude each other")
    from ottla.admin.cluster import Cluster
    from ottla.admin.produce import RecordSender

    sent = 0
    separator = key_separator.encode() if key_separator is not None else None
    # At a terminal the user types the lines: a progress bar would overwrite them.
    wanted = False if show_progress is None and sys.stdin.isatty() else show_progress
    with (
        progress("sent", None, wanted=wanted) as show,
        RecordSender(Cluster(bootstrap), topic, acks=acks, compression=compression) as sender,
    ):
        began = time.monotonic()
        for number, line in enumerate(sys.stdin.buffer, 1):
            sender.send(_record(line.rstrip(b"\r\n"), number, separator, as_json))
            sent += 1
            show(sent)
            while rate is not None and (ahead := sent / rate - (time.monotonic() - began)) > 0:
                sender.poll(min(ahead, 0.1))


def _record(line: bytes, number: int, separator: bytes | None, as_json: bool) -> "OutgoingRecord":
    from ottla.admin.json_records import OutgoingRecord, record_from_json

    if as_json:
        try:
            return record_from_json(line)
        except ValueError as error:
            raise CommandError(f"Line {number} is not a record: {error}") from None
    if separator is None:
        return OutgoingRecord(None, line, [], None, None)
    key, found, value = line.partition(separator)
    if not found:
        raise CommandError(
            f"Line {number} has no key: it does not contain the separator {separator.decode()!r}"
        )
    return OutgoingRecord(key, value, [], None, None)
