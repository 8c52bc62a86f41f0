"""`ottla perf`: measures throughput and latency with one client."""

from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.options import (
    ACKS,
    CODECS,
    DEFAULT_BOOTSTRAP,
    Acks,
    AsJson,
    Bootstrap,
    Compression,
    check_choice,
)
from ottla.cli.output import print_json, print_table, progress

if TYPE_CHECKING:
    from ottla.admin.perf import Throughput

app = typer.Typer(help="Measure a cluster: throughput and latency.", no_args_is_help=True)

_Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")]
_Size = Annotated[
    int, typer.Option("--size", "-s", metavar="BYTES", min=1, help="The size of each record's value.")
]


@app.command()
def produce(
    topic: _Topic,
    records: Annotated[
        int, typer.Option("--records", "-n", metavar="N", min=1, help="How many records to send.")
    ] = 100_000,
    size: _Size = 1000,
    acks: Acks = "all",
    compression: Compression = "none",
    rate: Annotated[
        float | None, typer.Option("--rate", metavar="N", min=0.001, help="Send at most N records a second.")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Send records of random bytes as fast as possible. The latency is the time to the acknowledgement."""
    check_choice("--acks", acks, ACKS)
    check_choice("--compression", compression, CODECS)
    from ottla.admin.cluster import Cluster
    from ottla.admin.perf import measure_produce

    cluster = Cluster(bootstrap)
    with progress("sent", records) as show:
        result = measure_produce(
            cluster,
            topic,
            records=records,
            size=size,
            acks=acks,
            compression=compression,
            rate=rate,
            progress=show,
        )
    _report(result, as_json)


@app.command()
def consume(
    topic: _Topic,
    records: Annotated[
        int | None,
        typer.Option("--records", "-n", metavar="N", min=1, help="How many records to read; default: all."),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Read a topic from its beginning as fast as possible."""
    from ottla.admin.cluster import Cluster
    from ottla.admin.perf import measure_consume

    cluster = Cluster(bootstrap)
    with progress("read", records) as show:
        result = measure_consume(cluster, topic, records=records, progress=show)
    _report(result, as_json)


@app.command()
def latency(
    topic: _Topic,
    records: Annotated[
        int, typer.Option("--records", "-n", metavar="N", min=1, help="How many records to send.")
    ] = 1000,
    size: _Size = 100,
    acks: Acks = "all",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Send one record at a time and wait until a consumer gets it: the end-to-end latency."""
    check_choice("--acks", acks, ACKS)
    from ottla.admin.cluster import Cluster
    from ottla.admin.perf import measure_latency

    cluster = Cluster(bootstrap)
    with progress("round trips", records) as show:
        result = measure_latency(cluster, topic, records=records, size=size, acks=acks, progress=show)
    _report(result, as_json)


def _report(result: "Throughput", as_json: bool) -> None:
    if as_json:
        rates = {"records_per_second": result.records_per_second, "mb_per_second": result.mb_per_second}
        print_json(result._asdict() | rates)
        return
    print_table(
        [">RECORDS", ">MB", ">SECONDS", ">RECORDS/S", ">MB/S"],
        [
            (
                f"{result.records:,}",
                f"{result.bytes / 1e6:,.1f}",
                f"{result.seconds:.3f}",
                f"{result.records_per_second:,.0f}",
                f"{result.mb_per_second:,.1f}",
            )
        ],
    )
    if result.latency_ms:
        print()
        columns = [">LATENCY", *(f">{name.upper()}" for name in result.latency_ms)]
        print_table(columns, [("ms", *(f"{value:.2f}" for value in result.latency_ms.values()))])
