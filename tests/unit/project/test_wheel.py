"""The wheel is complete: a broker runs from it in an environment that has nothing else.

pip builds the wheel from the checkout and installs it, with the dependencies that it declares and no others, into an
empty environment, from the package index that `make test` installs from. So a module that the wheel lacks, or a
dependency that pyproject.toml does not declare, fails this test. It does not prove the extras `spark` and `cdc`.
"""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tests.interop.brokers import run_ottla

import ottla

ROOT = Path(__file__).parents[3]
PIP = ("-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input")
PIP_TIMEOUT_S = 110
COMMAND_TIMEOUT_S = 30


def run(*command: str | Path, stdin: str = "", timeout_s: int = COMMAND_TIMEOUT_S) -> str:
    """Runs a command outside of the checkout's environment and returns its output."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        command, input=stdin, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.slow
def test_a_broker_runs_from_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(sys.executable, *PIP, "wheel", "--no-deps", "-w", tmp_path, ROOT, timeout_s=PIP_TIMEOUT_S)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name == f"ottla-{ottla.__version__}-py3-none-any.whl"
    assert {"ottla/py.typed", "pyspark_ottla.py"} <= set(zipfile.ZipFile(wheel).namelist())

    run(sys.executable, "-m", "venv", tmp_path / "venv")
    constraints = ("-c", ROOT / "constraints.txt")
    run(tmp_path / "venv/bin/python", *PIP, "install", *constraints, wheel, timeout_s=PIP_TIMEOUT_S)

    monkeypatch.delenv("PYTHONPATH", raising=False)
    command = tmp_path / "venv/bin/ottla"
    assert run(command, "version").startswith(f"ottla {ottla.__version__} ")
    with run_ottla(tmp_path / "data", command=[str(command)]) as broker:
        where = ("--bootstrap", broker.bootstrap)
        run(command, "topics", "create", "orders", *where)
        run(command, "produce", "orders", "--json", *where, stdin='{"key": "ada", "value": "3 apples"}\n')
        assert run(command, "consume", "orders", "--keys", *where) == "ada\t3 apples\n"
