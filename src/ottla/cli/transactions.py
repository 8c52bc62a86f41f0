"""`ottla transactions`: list, describe, hanging, abort."""

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, check_choices, parse_option
from ottla.cli.output import print_json, print_table
from ottla.cli.reset_offsets import parse_scopes

if TYPE_CHECKING:
    from ottla.admin.hanging_transactions import OpenTransaction
    from ottla.admin.transactions import TransactionDescription

app = typer.Typer(
    help="Transactions: list, describe, find those that hang in a partition, abort them.",
    no_args_is_help=True,
)

_LongerThan = Annotated[
    str | None,
    typer.Option("--longer-than", metavar="DURATION", help="Only transactions open for longer, e.g. PT15M."),
]


@app.command("list")
def list_command(
    state: Annotated[
        list[str] | None, typer.Option("--state", metavar="STATE", help="Only transactions in this state.")
    ] = None,
    longer_than: _LongerThan = None,
    pattern: Annotated[
        str | None,
        typer.Option("--pattern", metavar="REGEX", help="Only transactional ids that match entirely (RE2)."),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """List the transactional ids with the state of their newest transaction."""
    from ottla.admin.cluster import Cluster
    from ottla.admin.transactions import STATES, list_transactions

    states = check_choices("--state", state, STATES)
    longer_than_ms = _duration_ms(longer_than)
    lines = list_transactions(
        Cluster(bootstrap), states=states, longer_than_ms=longer_than_ms, pattern=pattern
    )
    if as_json:
        print_json(*(line._asdict() for line in lines))
    elif lines:
        print_table(["TRANSACTIONAL ID", "STATE", ">PRODUCER ID", ">COORDINATOR"], lines)
    else:
        filtered = states or longer_than or pattern
        print("No such transactions." if filtered else "No transactions.", file=sys.stderr)


def _duration_ms(longer_than: str | None) -> int | None:
    from ottla.admin.timestamps import parse_duration_ms

    return None if longer_than is None else parse_option("--longer-than", parse_duration_ms, longer_than)


@app.command()
def describe(
    transactional_ids: Annotated[list[str], typer.Argument(metavar="ID...", help="The transactional ids.")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show state, coordinator, producer, timeout and partitions of transactional ids."""
    from ottla.admin.cluster import Cluster
    from ottla.admin.transactions import describe_transactions

    described = describe_transactions(Cluster(bootstrap), transactional_ids)
    for number, transaction in enumerate(described):
        if as_json:
            print_json(_as_json(transaction))
        else:
            print("\n" if number else "", end="")
            _print_transaction(transaction)


def _as_json(transaction: "TransactionDescription") -> dict[str, Any]:
    partitions = [partition._asdict() for partition in transaction.partitions]
    return transaction._asdict() | {
        "coordinator": transaction.coordinator._asdict(),
        "partitions": partitions,
    }


def _print_transaction(transaction: "TransactionDescription") -> None:
    from ottla.admin.timestamps import format_time

    print(f"{transaction.transactional_id}  ({transaction.state})")
    producer = f"producer id {transaction.producer_id}, epoch {transaction.producer_epoch}"
    print(f"coordinator {transaction.coordinator}, {producer}, timeout {transaction.timeout_ms} ms")
    if transaction.start_ms is not None:
        print(f"newest transaction began {format_time(transaction.start_ms)}")
    if transaction.partitions:
        print()
        print_table(["TOPIC", ">PARTITION"], transaction.partitions)


@app.command()
def hanging(
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic", "-t", metavar="NAME[:PARTITIONS]", help="Search only this topic; may be repeated."
        ),
    ] = None,
    longer_than: _LongerThan = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Find transactions that are open in a partition, but that no coordinator will end."""
    from ottla.admin.cluster import Cluster
    from ottla.admin.hanging_transactions import find_hanging_transactions, max_timeout_ms

    scopes, longer_than_ms = parse_scopes(topic), _duration_ms(longer_than)
    cluster = Cluster(bootstrap)
    if longer_than_ms is None:
        longer_than_ms = max_timeout_ms(cluster)
    now_ms = time.time_ns() // 1_000_000
    found = find_hanging_transactions(cluster, scopes, longer_than_ms, now_ms)
    if as_json:
        print_json(*(line._asdict() for line in found))
    elif found:
        _print_hanging(found)
    else:
        print(
            f"No hanging transactions (open for longer than {longer_than_ms / 1000:g} s, and no coordinator will "
            "end them).",
            file=sys.stderr,
        )


def _print_hanging(found: list["OpenTransaction"]) -> None:
    from ottla.admin.timestamps import format_time

    columns = [
        "TOPIC",
        ">PARTITION",
        ">START OFFSET",
        ">PRODUCER ID",
        ">EPOCH",
        ">COORDINATOR EPOCH",
        "LAST RECORD",
    ]
    print_table(columns, [(*line[:-1], format_time(line.last_timestamp_ms)) for line in found])


@app.command()
def abort(
    topic: Annotated[str, typer.Option("--topic", "-t", metavar="NAME", help="The topic.")],
    partition: Annotated[int, typer.Option("--partition", "-p", metavar="N", min=0, help="The partition.")],
    start_offset: Annotated[
        int,
        typer.Option(
            "--start-offset", metavar="N", min=0, help="The first offset of the transaction in the partition."
        ),
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Abort a hanging transaction in one partition. Fails if a coordinator will end the transaction itself."""
    from ottla.admin.cluster import Cluster
    from ottla.admin.hanging_transactions import abort_transaction
    from ottla.model.ids import TopicPartition

    cluster, where = Cluster(bootstrap), TopicPartition(topic, partition)
    if not yes and sys.stdin.isatty():
        typer.confirm(f"Abort the transaction at offset {start_offset} of {where}?", abort=True)
    aborted = abort_transaction(cluster, where, start_offset)
    if as_json:
        print_json(aborted._asdict())
    else:
        print(
            f"Aborted the transaction of producer {aborted.producer_id} at offset {start_offset} of {where}"
        )
