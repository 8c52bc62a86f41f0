"""DuckDB with its extension `delta`, fetched once from PyPI, since DuckDB's own server may be out of reach.

The extension is for one version of DuckDB, so it comes with that version, apart from the installed packages. DuckDB
accepts it only because its makers signed it.
"""

import fcntl
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

VERSION = "1.5.5"
CACHE = Path(__file__).parents[2] / ".cache" / f"duckdb-delta-{VERSION}"
FETCH_TIMEOUT_S = 600
_PLATFORM = "import duckdb; print(duckdb.connect().execute('pragma platform').fetchone()[0])"


@cache
def duckdb_with_delta() -> dict[str, str] | str:
    """The environment of a Python that has both, or the reason why there is none."""
    CACHE.mkdir(parents=True, exist_ok=True)
    # A home where `INSTALL delta` finds the extension installed.
    environment = {**os.environ, "PYTHONPATH": str(CACHE / "packages"), "HOME": str(CACHE / "home")}
    with (CACHE / "lock").open("w") as lock:
        # Two test workers may come here at once: the second waits for the first and finds the packages.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (CACHE / "home").is_dir():
            reason = _fetch(environment)
            if reason:
                return reason
    return environment


def _fetch(environment: dict[str, str]) -> str:
    """The reason why it failed, if it did."""
    packages, home = CACHE / "packages", CACHE / "partial-home"
    for folder in (packages, home):
        shutil.rmtree(folder, ignore_errors=True)
    wanted = [f"duckdb=={VERSION}", f"duckdb-extension-delta=={VERSION}"]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(packages), *wanted]
    try:
        done = subprocess.run(pip, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return f"pip did not bring {wanted[1]} within {FETCH_TIMEOUT_S} s"
    if done.returncode != 0:
        return f"pip could not fetch {wanted[1]}: {done.stderr.strip().splitlines()[-1]}"
    (extension,) = packages.glob("duckdb_extension_delta/extensions/*/delta.duckdb_extension")
    platform = subprocess.run(
        [sys.executable, "-c", _PLATFORM], env=environment, capture_output=True, text=True, check=True
    )
    installed = home / ".duckdb" / "extensions" / f"v{VERSION}" / platform.stdout.strip()
    installed.mkdir(parents=True)
    (installed / extension.name).symlink_to(extension)
    home.rename(CACHE / "home")
    return ""
