"""Consumer groups: the time until a group is ready and after a join, offset commits, a thousand groups at once.

With the defaults of broker and client, among them the 3 s of `group.initial.rebalance.delay.ms` in classic groups.
"""

from collections.abc import Callable

from bench.scenario import Metric, Scenario, Sizes
from bench.sides import Side

PARTITIONS = 20
JOINS_TO = 4
COMMIT_CONNECTIONS = 20
COMMIT_PARTITIONS = 10
GROUPS = 1_000
HEARTBEAT_INTERVAL_S = 1.0


def ready(protocol: str) -> Callable[[Side, Sizes], dict[str, float]]:
    def run(side: Side, sizes: Sizes) -> dict[str, float]:
        broker = side.running()
        found = {}
        for members in (1, 20):
            with side.topic(broker, PARTITIONS) as topic:
                shape = {"group": topic, "protocol": protocol, "partitions": PARTITIONS, "members": members}
                found[f"of {members}"] = side.client("group_ready", broker, topic, **shape)["ready_s"]
        return found

    return run


def join(side: Side, sizes: Sizes) -> dict[str, float]:
    broker = side.running()
    found = {}
    for name, protocol in (("cooperative", "cooperative"), ("KIP-848", "consumer")):
        with side.topic(broker, PARTITIONS) as topic:
            shape = {"group": topic, "protocol": protocol, "partitions": PARTITIONS, "members": JOINS_TO}
            joined = side.client("group_join", broker, topic, joins=sizes.of(2, 1), **shape)
        found[name] = joined["joined_s"]
    return found


def commits(side: Side, sizes: Sizes) -> dict[str, float]:
    broker = side.running()
    with side.topic(broker, COMMIT_PARTITIONS) as topic:
        shape = {"connections": COMMIT_CONNECTIONS, "partitions": COMMIT_PARTITIONS}
        # Warm-up: the JVM has not committed offsets before.
        side.client("offset_commits", broker, topic, run_s=sizes.of(5, 2), **shape)
        cpu_before = broker.cpu_seconds()
        done = side.client("offset_commits", broker, topic, run_s=sizes.of(10, 2), **shape)
        cpu = broker.cpu_seconds() - cpu_before
    return {"commits": done["commits"] / done["seconds"], "broker CPU": 1e6 * cpu / done["commits"]}


def many(side: Side, sizes: Sizes) -> dict[str, float]:
    broker = side.running()
    with side.topic(broker) as topic:
        shape = {"groups": sizes.of(GROUPS, 100), "interval_s": HEARTBEAT_INTERVAL_S}
        done = side.client("many_groups", broker, topic, heartbeats=sizes.of(20, 3), **shape)
    return {
        "ready": done["ready_s"],
        "p99": done["p99_ms"],
        "worst": done["worst_ms"],
        "in time": done["in_time_percent"],
    }


READY_METRICS = tuple(Metric(f"of {members}", "s", higher_is_better=False, target=1.0) for members in (1, 20))

SCENARIOS = (
    Scenario(
        "group-ready",
        f"a classic group (cooperative-sticky) on {PARTITIONS} partitions, until all members read",
        READY_METRICS,
        ready("cooperative"),
    ),
    Scenario(
        "group-ready-848",
        f"a KIP-848 group on {PARTITIONS} partitions, until all members read",
        READY_METRICS,
        ready("consumer"),
    ),
    Scenario(
        "group-join",
        f"one more joins a group of {JOINS_TO} on {PARTITIONS} partitions, until all is settled again",
        tuple(Metric(name, "s", higher_is_better=False, target=1.0) for name in ("cooperative", "KIP-848")),
        join,
    ),
    Scenario(
        "offset-commits",
        f"OffsetCommit requests of {COMMIT_PARTITIONS} partitions over {COMMIT_CONNECTIONS} connections",
        (Metric("commits", "1/s", target=2.0), Metric("broker CPU", "us", higher_is_better=False)),
        commits,
    ),
    Scenario(
        "groups-1000",
        f"{GROUPS:,} classic groups of one member, a heartbeat each a second (quick: 100 groups)",
        (
            Metric("ready", "s", higher_is_better=False),
            Metric("p99", "ms", higher_is_better=False),
            Metric("worst", "ms", higher_is_better=False),
            Metric("in time", "%", target=1.0),
        ),
        many,
    ),
)
