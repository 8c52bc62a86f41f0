"""`ottla consume`: prints the records of a topic."""

import sys
import time
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from ottla.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap


def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")],
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="WHERE",
            help="earliest, latest, an offset, a time ago (-90s, -5m, -1h, -2d), an ISO time or epoch milliseconds.",
        ),
    ] = "earliest",
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", metavar="N", help="Only this partition; may be repeated."),
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", "-n", metavar="N", min=1, help="Stop after N records.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for new records, until Ctrl-C.")
    ] = False,
    keys: Annotated[bool, typer.Option("--keys", help="Print the key and a tab before the value.")] = False,
    headers: Annotated[
        bool, typer.Option("--headers", help="Print the headers and a tab before that.")
    ] = False,
    offsets: Annotated[
        bool, typer.Option("--offsets", help="Print PARTITION:OFFSET and a tab before that.")
    ] = False,
    timestamps: Annotated[
        bool, typer.Option("--timestamps", help="Print the time and a tab before that.")
    ] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Print records, one per line: to the end of the topic, or with --follow as they come.

    With --json each line is a whole record, in the format that `ottla produce --json` reads.
    """
    from ottla.admin.cluster import Cluster
    from ottla.admin.consume import read_batches
    from ottla.admin.json_records import record_to_json
    from ottla.admin.position import parse_position

    try:
        position = parse_position(start, int(time.time() * 1000))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    columns = _columns(timestamps=timestamps, offsets=offsets, headers=headers, keys=keys)
    out = sys.stdout.buffer
    left = count
    for batch in read_batches(Cluster(bootstrap), topic, position, partitions=partition or (), follow=follow):
        for message in batch[:left]:
            line = record_to_json(message).encode() if as_json else b"\t".join(c(message) for c in columns)
            out.write(line + b"\n")
        out.flush()
        if left is not None:
            left -= len(batch)
            if left <= 0:
                return


def _columns(*, timestamps: bool, offsets: bool, headers: bool, keys: bool) -> list[Any]:
    chosen = [(timestamps, _time), (offsets, _offset), (headers, _headers), (keys, _key), (True, _value)]
    return [column for wanted, column in chosen if wanted]


def _time(message: Any) -> bytes:
    kind, milliseconds = message.timestamp()
    if not kind:
        return b"-"
    time = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z").encode()


def _offset(message: Any) -> bytes:
    return f"{message.partition()}:{message.offset()}".encode()


def _headers(message: Any) -> bytes:
    return b",".join(name.encode() + b"=" + _text(value) for name, value in message.headers() or [])


def _key(message: Any) -> bytes:
    return _text(message.key())


def _value(message: Any) -> bytes:
    return _text(message.value())


def _text(data: bytes | None) -> bytes:
    return b"null" if data is None else data
