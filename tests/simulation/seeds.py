"""The seeds of a run: one in `make check`, more in `make test` (OTTLA_SIM_SEEDS)."""

import os

SEEDS = range(int(os.environ.get("OTTLA_SIM_SEEDS", "5")))
