"""kafkajs, installed into a cache folder by npm when it is first needed."""

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent / "node"
CACHE = Path(__file__).parents[2] / ".cache" / "node"
TIMEOUT_S = 120


def ensure_kafkajs() -> Path:
    """The file from which a script of `node/` requires kafkajs. Skips the test, with the reason, without it."""
    for tool in ("node", "npm"):
        if shutil.which(tool) is None:
            pytest.skip(f"no `{tool}` on the PATH: kafkajs is not tested")
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (CACHE / "node_modules" / "kafkajs").is_dir():
            shutil.copy(SOURCE / "package.json", CACHE)
            install = ["npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--silent"]
            done = subprocess.run(
                install, cwd=CACHE, capture_output=True, text=True, timeout=300, check=False
            )
            if done.returncode != 0:
                pytest.skip(f"npm could not install kafkajs: {(done.stdout + done.stderr).strip()[:300]}")
    return CACHE / "package.json"


def run_check(bootstrap: str, topic: str, check: str) -> None:
    """Runs one of the checks of `node/contract.mjs`."""
    environment = {
        **os.environ,
        "KAFKAJS_FROM": str(ensure_kafkajs()),
        "KAFKAJS_NO_PARTITIONER_WARNING": "1",
    }
    command = ["node", str(SOURCE / "contract.mjs"), bootstrap, topic, check]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.stdout.endswith(f"ok {check}\n"), f"{done.stdout}\n{done.stderr}"
