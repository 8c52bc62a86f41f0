"""Whole clusters of real nodes under all faults: see `ottla.sim.cluster_workload` for what is checked."""

import pytest
from tests.simulation.seeds import CLUSTER_SEEDS
from tests.simulation.workloads import run_workload


@pytest.mark.parametrize("seed", CLUSTER_SEEDS)
def test_a_cluster_loses_and_repeats_nothing_that_it_acknowledged(seed: int) -> None:
    run_workload("cluster", seed)
