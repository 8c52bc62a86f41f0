import pytest
from tests.simulation.log_model import LogModel
from tests.simulation.seeds import SEEDS

# A log alone is fast, so each seed runs many programs.
PROGRAMS_PER_SEED = 20


@pytest.mark.parametrize("seed", SEEDS)
def test_a_log_keeps_flushed_records_after_power_losses_and_all_records_after_kills(seed: int) -> None:
    for program in range(seed * PROGRAMS_PER_SEED, (seed + 1) * PROGRAMS_PER_SEED):
        model = LogModel(program)
        try:
            model.run(150)
        except Exception as error:
            error.add_note("\n".join([f"program {program}, the last steps:", *model.story[-15:]]))
            raise
