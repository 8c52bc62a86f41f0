"""kafkajs, the JavaScript client: its producer and its admin client, with records read back by librdkafka.

Its consumer needs a group, so it has no place here while groups are not there.
"""

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.interop.brokers import RunningBroker
from tests.interop.librdkafka import read_records

pytestmark = [pytest.mark.contract, pytest.mark.node]

SOURCE = Path(__file__).parent / "node"
CACHE = Path(__file__).parents[2] / ".cache" / "node"
TIMEOUT_S = 120


@pytest.fixture(scope="session")
def kafkajs() -> Path:
    """The folder where kafkajs is installed, by npm if need be."""
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
    return CACHE


def run_check(kafkajs: Path, broker: RunningBroker, topic: str, check: str) -> None:
    environment = {
        **os.environ,
        "KAFKAJS_FROM": str(kafkajs / "package.json"),
        "KAFKAJS_NO_PARTITIONER_WARNING": "1",
    }
    command = ["node", str(SOURCE / "contract.mjs"), broker.bootstrap, topic, check]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.stdout.endswith(f"ok {check}\n"), f"{done.stdout}\n{done.stderr}"


def test_kafkajs_records_are_read_by_librdkafka(
    kafkajs: Path, broker: RunningBroker, topic_name: str
) -> None:
    run_check(kafkajs, broker, topic_name, "produce")
    records = read_records(broker.bootstrap, topic_name, 211, check_crcs=True)
    sent = [f"{kind}{n}" for kind in ("plain", "gzip") for n in range(100)] + [
        f"idempotent{n}" for n in range(10)
    ]
    assert [record.value() for record in records] == [*(value.encode() for value in sent), None]
    assert (records[105].key(), records[105].headers()) == (b"k5", [("n", b"5")])


@pytest.mark.parametrize("check", ["admin", "offsets"])
def test_kafkajs_administers(kafkajs: Path, broker: RunningBroker, topic_name: str, check: str) -> None:
    run_check(kafkajs, broker, topic_name, check)
