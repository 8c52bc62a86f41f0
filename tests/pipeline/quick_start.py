"""Makes the processes that Spark starts ready in less time. Most of the time of the pipeline's tests is their start."""

import sys
from pathlib import Path

# of the JVMs that start a driver, of drivers, and of Spark's master and workers
_VARIABLES = ("SPARK_LAUNCHER_OPTS", "SPARK_SUBMIT_OPTS", "SPARK_DAEMON_JAVA_OPTS")

# The quick compiler alone, and one thread that collects garbage: the start of a JVM takes half the processor time.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

# Spark puts its pyspark.zip before the installed pyspark. It has no compiled modules, so each Python that Spark starts
# would compile them again, which takes three times as long as all other imports.
_PYTHON = """\
#!/bin/sh
kept=
IFS=:
for path in $PYTHONPATH; do
  case $path in
    */pyspark.zip | */py4j-*-src.zip) ;;
    *) kept=$kept:$path ;;
  esac
done
unset IFS
PYTHONPATH=${{kept#:}} exec "{python}" "$@"
"""


def quick_environment(folder: Path) -> dict[str, str]:
    """Environment variables for Spark. An executor has no variable: `spark.executor.extraJavaOptions` is for it."""
    return {**dict.fromkeys(_VARIABLES, JAVA_OPTIONS), "PYSPARK_PYTHON": str(_quick_python(folder))}


def _quick_python(folder: Path) -> Path:
    """This Python, with the installed pyspark."""
    command = folder / "python"
    command.write_text(_PYTHON.format(python=sys.executable))
    command.chmod(0o755)
    return command
