"""`ottla pipeline`: runs a data pipeline on Spark."""

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from ottla.cli.output import print_error, print_json, print_table
from ottla.cli.pipeline_archive import merge, sql, verify
from ottla.cli.pipeline_options import DEFAULT_FILE, File, Master
from ottla.cli.pipeline_replay import replay

if TYPE_CHECKING:
    from ottla.pipeline.stage import Finding

app = typer.Typer(
    help="A data pipeline on Spark: ingest, transform and archive, exactly once.",
    no_args_is_help=True,
)


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder to write it to.")] = Path("."),
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Write a commented pipeline.toml with a transform and sample data."""
    from ottla.pipeline.template import write_template

    for path in write_template(folder, bootstrap):
        print(f"Wrote {path}")
    where = "" if folder == Path(".") else f" --file {folder}"
    print(f"Next: ottla pipeline validate{where}, then ottla pipeline run{where}")


@app.command()
def validate(file: File = DEFAULT_FILE, as_json: AsJson = False) -> None:
    """Check a pipeline against the real cluster, paths and databases. Show all errors; change nothing."""
    from ottla.pipeline.config import ConfigErrors, load
    from ottla.pipeline.validation import check_pipeline

    try:
        findings = check_pipeline(load(file))
    except ConfigErrors as error:
        findings = error.findings
    if as_json:
        print_json(*(finding._asdict() for finding in findings))
    else:
        _print_findings(findings)
    if any(not finding.is_warning for finding in findings):
        raise typer.Exit(1)
    if not as_json:
        print(f"{file}: no errors found.")


@app.command()
def run(
    once: Annotated[bool, typer.Option("--once", help="Process the data that is there, then end.")] = False,
    only: Annotated[str | None, typer.Option("--only", metavar="NAME", help="Only this stage.")] = None,
    plain: Annotated[
        bool, typer.Option("--plain", help="Print lines for people, also at a terminal.")
    ] = False,
    master: Master = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            "--metrics", metavar="HOST:PORT", help="Serve /metrics, /healthz and /readyz over HTTP."
        ),
    ] = None,
    metrics_remote: Annotated[
        bool, typer.Option("--metrics-remote", help="Let --metrics use an address that other machines reach.")
    ] = False,
    file: File = DEFAULT_FILE,
) -> None:
    """Run the stages of a pipeline until Ctrl-C or SIGTERM. It continues where it was stopped.

    At a terminal it shows a table with a line for each stage, otherwise it prints lines of JSON.
    """
    from ottla.pipeline.config import load
    from ottla.pipeline.foreground import run_pipeline
    from ottla.pipeline.health import parse_address
    from ottla.pipeline.validation import check_pipeline

    address = None if metrics is None else parse_address(metrics, allow_remote=metrics_remote)
    pipeline = load(file)
    findings = check_pipeline(pipeline, only, master)
    _print_findings(findings)
    if any(not finding.is_warning for finding in findings):
        raise typer.Exit(1)
    as_json = not plain and not sys.stdout.isatty()
    succeeded = run_pipeline(
        pipeline, once=once, only=only, plain=plain, as_json=as_json, master=master, metrics=address
    )
    if not succeeded:
        raise typer.Exit(1)


@app.command()
def status(file: File = DEFAULT_FILE, as_json: AsJson = False) -> None:
    """Show the progress of each stage, from its checkpoint and the cluster. The pipeline need not run.

    The exit code is 1 if a topic's retention is about to delete records that are not archived, or has done so.
    """
    from ottla.pipeline.config import load
    from ottla.pipeline.status import EndOffsets, statuses

    pipeline = load(file)
    ends = EndOffsets(pipeline)
    lines = statuses(pipeline, ends)
    if as_json:
        print_json(*(line._asdict() for line in lines))
    else:
        print_table(
            ["STAGE", "KIND", ">BATCH", "LAST BATCH", ">BEHIND", "STATE"],
            [(line.stage, line.kind, line.batch, line.at, line.behind, line.state) for line in lines],
        )
    if ends.error is not None:
        print_error(ends.error)
    risks = [f"{line.stage}: {risk}" for line in lines for risk in line.risks]
    for risk in risks:
        print_error(f"{risk} Run the archive now, or raise the topic's retention.")
    if risks:
        raise typer.Exit(1)


app.command()(replay)
app.command()(verify)
app.command()(merge)
app.command()(sql)


@app.command()
def submit(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- OPTIONS]", help="Options for spark-submit itself, after --."),
    ] = None,
    run: Annotated[bool, typer.Option("--run", help="Run the command instead of printing it.")] = False,
    once: Annotated[
        bool, typer.Option("--once", help="The job processes the data that is there, then ends.")
    ] = False,
    master: Master = None,
    file: File = DEFAULT_FILE,
) -> None:
    """Print the spark-submit command that runs the pipeline on a cluster, with this package attached."""
    import shlex

    from ottla.pipeline.config import load
    from ottla.pipeline.spark_submit import (
        find_spark_submit,
        submit_command,
        submit_environment,
        write_attachments,
    )

    pipeline = load(file)
    archive, job = write_attachments(pipeline)
    line = submit_command(pipeline, archive, job, master, once=once, more=arguments or [])
    if not run:
        print(shlex.join(line))
        return
    environment = submit_environment(os.environ)
    done = subprocess.run([find_spark_submit(environment), *line[1:]], env=environment, check=False)
    raise typer.Exit(done.returncode)


@app.command()
def reference() -> None:
    """Print docs/pipeline/settings.md: every setting of a pipeline.toml."""
    from ottla.pipeline.reference import reference_markdown

    print(reference_markdown(), end="")


def _print_findings(findings: "list[Finding]") -> None:
    for finding in findings:
        kind = "warning" if finding.is_warning else "error"
        print(f"{kind}: {finding.where}: {finding.what} {finding.remedy}", file=sys.stderr)
