"""The seeds of a run, for one broker, for clusters and for quorums. `make test` sets larger numbers."""

import os

SEEDS = range(int(os.environ.get("OTTLA_SIM_SEEDS", "5")))
CLUSTER_SEEDS = range(int(os.environ.get("OTTLA_SIM_CLUSTER_SEEDS", len(SEEDS))))
QUORUM_SEEDS = range(int(os.environ.get("OTTLA_SIM_QUORUM_SEEDS", len(SEEDS))))
