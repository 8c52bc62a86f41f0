"""Simulation of the broker: a virtual-time event loop with a simulated network and disk, from one seed.

- The simulated machine, an `ottla.env.Env`: `env`, `loop`, `clock`, `network`, `disk`, `volume`, `threads`,
  `processes`.
- The broker in it and its faults: `node`. The trace of a run: `trace`.
- Clients: `client`, `partition_clients`, `group_client` and the group members, `transaction_client` and its programs.
- Checks: `history`, `group_history`, `topic_history`, `transaction_history`, `coordinator_audit`.
- What runs: `produce_workload`, `group_workload`, `topic_workload`, `transaction_workload` (`python -m ottla.sim`).
"""
