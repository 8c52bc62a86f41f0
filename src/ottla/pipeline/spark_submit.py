"""The `spark-submit` command of a pipeline: `ottla pipeline run` is the job, with this package and the transforms."""

import importlib.util
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from ottla import __version__
from ottla.pipeline.config import Pipeline, as_text
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.spark.java import ensure_java

_FOLDER = "submit"
_PACKAGE = Path(__file__).parents[1]
_JOB = '''\
"""Runs `ottla pipeline run` as a job of spark-submit."""

from ottla.cli.main import main

main()
'''


def write_attachments(pipeline: Pipeline) -> tuple[Path, Path]:
    """Writes the package as a zip, which Spark puts on the path of every executor, and the job's file."""
    folder = pipeline.context.folder / _FOLDER
    archive, job = folder / f"ottla-{__version__}.zip", folder / "ottla_pipeline.py"
    try:
        folder.mkdir(exist_ok=True)
        fresh = archive.with_suffix(".new")
        with zipfile.ZipFile(fresh, "w", zipfile.ZIP_DEFLATED) as packed:
            for file in _package_files():
                packed.write(file, file.relative_to(_PACKAGE.parent))
        fresh.replace(archive)
        job.write_text(_JOB)
    except OSError as error:
        raise PipelineError(
            f"The files to submit cannot be written to {folder}: {error.strerror}.",
            "Make room there, or allow this user to write there.",
        ) from None
    return archive, job


def _package_files() -> list[Path]:
    files = [file for file in _PACKAGE.rglob("*") if file.is_file() and "__pycache__" not in file.parts]
    return sorted([*files, _PACKAGE.parent / "pyspark_ottla.py"])


def submit_command(
    pipeline: Pipeline,
    archive: Path,
    job: Path,
    master: str | None,
    *,
    once: bool = False,
    more: Sequence[str] = (),
) -> list[str]:
    """`more` are options of spark-submit itself, such as --deploy-mode or --num-executors."""
    master = master or pipeline.spark.master
    modules = sorted(pipeline.context.folder.glob("*.py"))
    attached = ",".join(str(path) for path in (archive, *modules))
    conf = [
        part for key, value in pipeline.spark.conf.items() for part in ("--conf", f"{key}={as_text(value)}")
    ]
    name = f"ottla {pipeline.context.pipeline}"
    run = ["pipeline", "run", "--plain", "--master", master, "--file", str(pipeline.path.resolve())]
    run += ["--once"] if once else []
    return [
        "spark-submit",
        "--master",
        master,
        "--name",
        name,
        *conf,
        "--py-files",
        attached,
        *more,
        str(job),
        *run,
    ]


def submit_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of spark-submit: this Python, a Java, and SPARK_HOME or else pyspark's scripts."""
    found = {"PYSPARK_PYTHON": sys.executable, **environment}
    pyspark = importlib.util.find_spec("pyspark")
    if "SPARK_HOME" not in found and pyspark is not None and pyspark.origin is not None:
        found["SPARK_HOME"] = str(Path(pyspark.origin).parent)
    ensure_java(found)
    return found


def find_spark_submit(environment: Mapping[str, str]) -> str:
    script = Path(environment.get("SPARK_HOME", "")) / "bin" / "spark-submit"
    if not environment.get("SPARK_HOME") or not script.is_file():
        raise PipelineError(
            f"There is no spark-submit at {script}.",
            "Install it: pip install 'ottla[spark]', or set SPARK_HOME.",
        )
    return str(script)
