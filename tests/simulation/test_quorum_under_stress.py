"""A quorum of real nodes under kills, power losses, pauses, cut links, skewed clocks and failing disks."""

import pytest
from tests.simulation.seeds import QUORUM_SEEDS
from tests.simulation.workloads import run_workload


@pytest.mark.parametrize("seed", QUORUM_SEEDS)
def test_a_quorum_keeps_the_guarantees_of_raft_and_all_acknowledged_commands(seed: int) -> None:
    run_workload("quorum", seed)


@pytest.mark.parametrize("seed", QUORUM_SEEDS)
def test_a_quorum_whose_voters_change_keeps_the_guarantees_too(seed: int) -> None:
    run_workload("voters", seed)


@pytest.mark.parametrize("seed", QUORUM_SEEDS)
def test_a_quorum_that_raises_kraft_version_keeps_the_guarantees_too(seed: int) -> None:
    run_workload("upgrade", seed)
