"""Runs a broker, a generator of orders and a pipeline, and prints what to try on them."""

import dataclasses
import shutil
import sys
from pathlib import Path

from ottla.pipeline.config import FILE_NAME, Pipeline, load
from ottla.pipeline.demo.broker import running_broker
from ottla.pipeline.demo.orders import order_generator
from ottla.pipeline.foreground import run_pipeline
from ottla.pipeline.stage import ClusterSettings
from ottla.pipeline.template import write_template

_GUIDE = """\
Orders flow: {folder}/spool -> raw -> orders, and raw -> {folder}/archive. In another terminal:

  {ottla} consume orders{bootstrap} --from earliest --count 5
  {ottla} consume orders-dead{bootstrap} --from earliest --count 3 --json    rejected records, with the reason
  {ottla} pipeline status --file {folder}
  {ottla} pipeline sql --file {folder} "select date, hour, count(*) from archive group by date, hour"
  {ottla} pipeline verify --ranges --file {folder}            every offset of raw is archived once, by the manifests
  {ottla} pipeline verify --file {folder}                     also reads all files: starts Spark, half a minute
  cp FILE {folder}/spool/                                     add lines of your own
  $EDITOR {folder}/transforms.py {folder}/pipeline.toml      then start again: it resumes

Ctrl-C ends it, and `{ottla} demo` resumes it. All its files are in {folder}/.
"""
_DEFAULT_PORT = ":9092"


def tour(folder: Path, listen: str) -> bool:
    """Runs until Ctrl-C or SIGTERM. Returns whether no stage failed."""
    folder.mkdir(parents=True, exist_ok=True)
    with running_broker(folder / "data", listen, folder / "broker.log") as address:
        if not (folder / FILE_NAME).exists():
            write_template(folder, address)
        pipeline = at_address(load(folder), address)
        print(guide(folder, address), flush=True)
        with order_generator(folder / "spool"):
            return run_pipeline(pipeline)


def at_address(pipeline: Pipeline, address: str) -> Pipeline:
    """The pipeline with another bootstrap address: the broker may listen elsewhere than in the first run."""
    return dataclasses.replace(
        pipeline, context=dataclasses.replace(pipeline.context, cluster=ClusterSettings(address))
    )


def guide(folder: Path, address: str) -> str:
    ottla = "ottla" if shutil.which("ottla") else sys.argv[0]
    bootstrap = "" if address.endswith(_DEFAULT_PORT) else f" --bootstrap {address}"
    return _GUIDE.format(folder=folder, ottla=ottla, bootstrap=bootstrap)
