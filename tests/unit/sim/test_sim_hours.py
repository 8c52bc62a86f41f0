"""Long runs: seeds of a few hours, each in a process of its own."""

import os
from collections import Counter

import pytest

from ottla.sim.hours import HOURS_PER_SEED, LongResult, LongSeed, report, run_in_processes, split_hours


def test_hours_are_split_into_seeds_of_a_few_hours() -> None:
    seeds = split_hours(2 * HOURS_PER_SEED + 1.5, first_seed=7, lines=10)
    assert [(seed.seed, seed.hours) for seed in seeds] == [(7, HOURS_PER_SEED), (8, HOURS_PER_SEED), (9, 1.5)]


def test_a_seed_says_how_to_replay_it() -> None:
    assert LongSeed(7, 1.5, 10).command == "python -m ottla.sim --workload cluster --hours 1.5 --seed 7"


def result(seed: int, failure: str = "") -> LongResult:
    return LongResult(
        seed, failure, virtual_s=7200.0, processor_s=8.0, operations=100, faults=Counter({"kill": 3})
    )


def test_the_summary_has_the_totals_of_all_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(4, [result(1), result(2)]) == 0
    progress, *_, summary = capsys.readouterr().out.splitlines()
    assert progress.startswith(
        "2.0 of 4 virtual hours, 1 seeds, 3 faults, 100 operations checked, 0 violations"
    )
    assert summary == (
        "all checks passed: 4.0 of 4 virtual hours, 2 seeds, 6 faults, 200 operations checked, 0 violations, "
        "4.0 s of processor time per hour"
    )


def test_a_violation_is_printed_and_does_not_end_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(4, [result(1, "lost write: ..."), result(2)]) == 1
    output = capsys.readouterr().out
    assert output.startswith("lost write: ...\n")
    assert "violations found: 4.0 of 4 virtual hours, 2 seeds" in output


def run_or_die(task: LongSeed) -> LongResult:
    if task.seed == 2:
        os._exit(9)
    return LongResult(task.seed, digest=str(os.getpid()))


@pytest.mark.slow
def test_each_seed_has_its_own_process_and_the_end_of_a_process_is_a_failure() -> None:
    seeds = [LongSeed(seed, 1.0, 10) for seed in range(1, 5)]
    results = {found.seed: found for found in run_in_processes(run_or_die, seeds, 2)}
    assert sorted(results) == [1, 2, 3, 4]
    assert "the process of seed 2 ended with exit code 9" in results.pop(2).failure
    assert not any(found.failure for found in results.values())
    assert len({found.digest for found in results.values()} - {str(os.getpid())}) == 3
