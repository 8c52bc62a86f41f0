"""`ottla pipeline replay`: runs a corrected transform on the raw topic, into new topics."""

import base64
from typing import Annotated, Any

import typer

from ottla.cli.options import AsJson
from ottla.cli.output import print_json
from ottla.cli.pipeline_options import DEFAULT_FILE, File, Master


def replay(
    transform: Annotated[
        str, typer.Option("--transform", metavar="NAME", help="The transform, in its present version.")
    ],
    to: Annotated[str, typer.Option("--to", metavar="TOPIC", help="A new topic for the output.")],
    from_: Annotated[
        str, typer.Option("--from", metavar="earliest|TIME", help="Where to start: earliest or an ISO time.")
    ] = "earliest",
    master: Master = None,
    file: File = DEFAULT_FILE,
    as_json: AsJson = False,
) -> None:
    """Run a corrected transform on the raw topic into a new topic, and show what differs."""
    from ottla.pipeline.config import load
    from ottla.pipeline.foreground import command_session
    from ottla.pipeline.replay.command import replay as replayed
    from ottla.pipeline.replay.comparison import describe
    from ottla.pipeline.replay.planning import archives_of

    pipeline = load(file)
    item = pipeline.find(transform, "transforms")
    stage: Any = item.make(item.name, item.settings, pipeline.context)
    archives = archives_of(pipeline.declared, pipeline.context)

    def warn(line: str) -> None:
        print_json({"warning": line}) if as_json else print(line, flush=True)

    with command_session(pipeline, master) as spark:
        comparisons = replayed(spark, stage, to=to, from_=from_, archives=archives, warn=warn)
    for comparison in comparisons:
        if as_json:
            examples = [
                {name: _json_value(value) for name, value in example._asdict().items()}
                for example in comparison.examples
            ]
            print_json(comparison._asdict() | {"examples": examples})
        else:
            print("\n".join(describe(comparison)))


def _json_value(value: Any) -> Any:
    """Bytes as text, in base64 if they are not UTF-8."""
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
