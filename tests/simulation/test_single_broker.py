"""The whole real broker on a virtual-time event loop, with a simulated network and disk."""

import os
import subprocess
import sys

import pytest
from tests.simulation.seeds import SEEDS
from tests.simulation.workloads import run_workload

from ottla.sim.__main__ import WORKLOADS


@pytest.mark.parametrize("seed", SEEDS)
def test_every_acknowledged_record_is_in_the_log_once_and_in_order(seed: int) -> None:
    run_workload("produce", seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_groups_share_their_partitions_and_keep_their_commits(seed: int) -> None:
    run_workload("groups", seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_transactions_are_atomic_and_copies_exactly_once(seed: int) -> None:
    run_workload("transactions", seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_topic_is_not_affected_by_a_deleted_topic_with_its_name(seed: int) -> None:
    run_workload("topics", seed)


@pytest.mark.slow
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
