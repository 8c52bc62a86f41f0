"""All commands but `serve`, which is only listed here: `ottla.cli.main` runs it itself."""

import sys

import typer

from ottla import __version__
from ottla.cli import (
    brokers,
    cluster,
    configs,
    features,
    groups,
    perf,
    pipeline,
    quorum,
    reassign,
    topics,
    transactions,
)
from ottla.cli.consume import consume
from ottla.cli.demo import demo
from ottla.cli.dump_log import dump_log
from ottla.cli.format import format_command
from ottla.cli.options import AsJson
from ottla.cli.output import CommandError, print_error, print_json
from ottla.cli.produce import produce
from ottla.cli.serve import DESCRIPTION

# Also in docs/commands.md. Typer ends with 2 too, for instance for an unknown option.
_FAILED = 1
_WRONG_USAGE = 2
_UNREACHABLE = 3
_PASS_THROUGH = {"allow_extra_args": True, "ignore_unknown_options": True}

app = typer.Typer(
    name="ottla",
    help="Ottla: a distributed log that speaks Apache Kafka's protocol. Commands work on any Kafka cluster.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(
    "serve",
    help=DESCRIPTION + " See: ottla serve --help",
    add_help_option=False,
    context_settings=_PASS_THROUGH,
)(lambda: None)
app.command("format")(format_command)
app.add_typer(cluster.app, name="cluster")
app.add_typer(topics.app, name="topics")
app.add_typer(configs.app, name="configs")
app.add_typer(groups.app, name="groups")
app.add_typer(transactions.app, name="transactions")
app.add_typer(quorum.app, name="quorum")
app.add_typer(features.app, name="features")
app.add_typer(brokers.app, name="brokers")
app.add_typer(reassign.app, name="reassign")
app.command()(produce)
app.command()(consume)
app.add_typer(perf.app, name="perf")
app.add_typer(pipeline.app, name="pipeline")
app.command("dump-log")(dump_log)
app.command()(demo)


@app.command()
def version(as_json: AsJson = False) -> None:
    """Show the versions of Ottla, of librdkafka and of Python."""
    from confluent_kafka import libversion

    librdkafka = libversion()[0]
    if as_json:
        print_json({"ottla": __version__, "librdkafka": librdkafka, "python": sys.version.split()[0]})
    else:
        print(f"ottla {__version__} (librdkafka {librdkafka}, Python {sys.version.split()[0]})")


def run() -> int:
    """Runs the command line. Returns the exit code, or raises SystemExit as Typer does."""
    try:
        app(prog_name="ottla")
    except Exception as error:
        from ottla.admin.cluster import AddressError, ClusterError, UnreachableError
        from ottla.pipeline.errors import PipelineError

        if not isinstance(error, ClusterError | CommandError | PipelineError):
            raise
        print_error(str(error))
        if isinstance(error, AddressError):
            return _WRONG_USAGE
        return _UNREACHABLE if isinstance(error, UnreachableError) else _FAILED
    return 0
