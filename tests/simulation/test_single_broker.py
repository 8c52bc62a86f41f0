"""The whole real broker on a virtual-time event loop, with a simulated network and a disk that forgets."""

import os
import subprocess
import sys

import pytest
from tests.simulation.seeds import SEEDS
from tests.simulation.workloads import run_workload

from ottla.sim.__main__ import WORKLOADS


@pytest.mark.parametrize("seed", SEEDS)
def test_every_acknowledged_record_is_there_once_and_in_order_whatever_fails(seed: int) -> None:
    run_workload("produce", seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_groups_share_their_partitions_and_keep_their_commits_whatever_fails(seed: int) -> None:
    run_workload("groups", seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_transactions_are_whole_or_not_at_all_and_copies_exact_whatever_fails(seed: int) -> None:
    run_workload("transactions", seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_topic_keeps_its_records_whatever_was_deleted_under_its_name_before(seed: int) -> None:
    run_workload("topics", seed)


@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_seed_gives_the_same_run_of_the_whole_broker_under_two_hash_seeds(workload: str) -> None:
    outputs = [
        subprocess.run(
            [sys.executable, "-m", "ottla.sim", "--workload", workload, "--seed", "3"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert "events, trace" in outputs[0]
    assert outputs[0] == outputs[1]
