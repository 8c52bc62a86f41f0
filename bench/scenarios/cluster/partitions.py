"""Two thousand partitions on three nodes: creating them, what they cost when idle, and traffic over all of them."""

import time
from collections.abc import Callable

from confluent_kafka.admin import NewTopic

from bench.nodes import RunningCluster
from bench.scenario import Metric, Scenario, Sizes
from bench.scenarios.cluster.controller import create_after_kill
from bench.scenarios.cluster.load import steady_load
from bench.scenarios.cluster.steps import steps
from bench.scenarios.loop_turns import LONGEST_TURN, TURN_MS_MAX
from bench.sides import Side

FEW = 20
VALUE_BYTES = 1_000
LOAD_MB_A_SECOND = 10


def many_partitions(replication: int) -> Callable[[Side, Sizes], dict[str, float]]:
    def run(side: Side, sizes: Sizes) -> dict[str, float]:
        shape = {"topics": topics(sizes), "partitions": sizes.of(100, 20)}
        with steps() as taken, side.cluster() as cluster:
            cluster.create_topic(NewTopic("few", FEW, replication))
            few_cpu = idle_cpu(cluster, sizes)
            done = side.client("create_partitions", cluster, "", replication=replication, **shape)
            taken.measured["create"] = done["created_s"]
            many_cpu = idle_cpu(cluster, sizes)
            taken.measured |= {
                "idle CPU": many_cpu,
                "idle CPU, many over few": many_cpu / few_cpu if few_cpu else float("inf"),
                "memory": cluster.memory_mb(),
            }
            taken.take("produce", lambda: load(side, cluster, sizes, shape))
            taken.take("controller", lambda: {"topic after kill -9": create_after_kill(cluster)})
        return taken.measured

    return run


def topics(sizes: Sizes) -> list[str]:
    return [f"many-{number}" for number in range(sizes.of(20, 10))]


def idle_cpu(cluster: RunningCluster, sizes: Sizes) -> float:
    """All nodes together, in percent of one core, once they have come to rest."""
    time.sleep(sizes.of(10, 3))
    seconds = sizes.of(20, 4)
    before = cluster.cpu_seconds()
    time.sleep(seconds)
    return 100 * (cluster.cpu_seconds() - before) / seconds


def load(side: Side, cluster: RunningCluster, sizes: Sizes, shape: dict[str, object]) -> dict[str, float]:
    records = sizes.of(500_000, 20_000)
    done = side.client("produce_to_all", cluster, "", records=records, value_bytes=VALUE_BYTES, **shape)
    return {
        "produce": records * VALUE_BYTES / 1e6 / done["seconds"],
        "memory under load": cluster.memory_mb(),
    }


def turns(side: Side, sizes: Sizes) -> dict[str, float]:
    """An election means that the active controller was silent for too long, or a voter thought so."""
    with side.cluster() as cluster:
        cluster.create_topic(NewTopic("load", 6, 3))
        shape = {"topics": topics(sizes), "partitions": sizes.of(100, 20), "replication": 3}
        with steady_load(cluster, "load", 6, LOAD_MB_A_SECOND):
            before = cluster.quorum().leader_epoch
            side.client("create_partitions", cluster, "", **shape)
            elections = cluster.quorum().leader_epoch - before
        cluster.stop()
        longest = [float(LONGEST_TURN.findall(node.log_text())[-1]) for node in cluster.nodes.values()]
        return {"longest turn": max(longest), "elections": elections}


def metrics(create_target: float, memory_limit: float | None) -> tuple[Metric, ...]:
    return (
        Metric("create", "s", higher_is_better=False, target=create_target),
        Metric("idle CPU", "% of a core", higher_is_better=False, target=1.0),
        Metric("idle CPU, many over few", "x", higher_is_better=False, limit=2.0),
        Metric("memory", "MB", higher_is_better=False, limit=memory_limit),
        Metric("produce", "MB/s"),
        Metric("memory under load", "MB", higher_is_better=False),
        Metric("topic after kill -9", "s", higher_is_better=False, target=1.0),
    )


WHAT = (
    "2,000 partitions of replication {} (quick: 200) with one CreateTopics until each has taken a record; then all "
    f"nodes idle, over the same with {FEW} partitions; the largest node; 1 KB to all of them, acks=all; and kill -9 of "
    "the active controller until a topic can be created"
)
SCENARIOS = (
    Scenario("cluster-2000x1", WHAT.format(1), metrics(3.0, None), many_partitions(1)),
    Scenario("cluster-2000x3", WHAT.format(3), metrics(3.0, 120.0), many_partitions(3)),
    Scenario(
        "cluster-turns",
        "2,000 partitions of replication 3 created (quick: 200) while a client sends 10 MB/s: the longest turn of any "
        "node, and the elections of the quorum that it caused",
        (
            Metric("longest turn", "ms", higher_is_better=False, limit=TURN_MS_MAX),
            Metric("elections", "", higher_is_better=False, limit=0),
        ),
        turns,
        sides=("ottla",),
    ),
)
