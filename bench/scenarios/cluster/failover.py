"""The longest time without an acknowledged record after the leader of a partition dies or stands still."""

import itertools
import threading
import time
from collections.abc import Callable
from functools import partial

from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import NewTopic

from bench.nodes import QUIET, RunningCluster
from bench.scenario import Metric, Scenario, Sizes
from bench.scenarios.cluster.controller import create_after_kill
from bench.scenarios.cluster.steps import steps
from bench.sides import Side

INTERVAL_S = 0.01
STEADY_S = 3.0
LIMIT_S = 120.0
# The default of 60 s would measure the client: it waits for a response of the paused leader.
NOTICES_A_PAUSE = {"socket.timeout.ms": 1_000, "request.timeout.ms": 1_000}


def run(side: Side, sizes: Sizes) -> dict[str, float]:
    with steps() as taken, side.cluster() as cluster:
        for name, is_controller in (("kill -9", False), ("kill -9 of the controller", True)):
            taken.take(name, lambda n=name, c=is_controller: {n: after_kill(cluster, n, c)})  # type: ignore[misc]
            restart(cluster)
        pause_s = sizes.of(30, 12)
        taken.take("SIGSTOP", lambda: {"SIGSTOP": after_pause(cluster, pause_s)})
        restart(cluster)
        taken.take("controller", lambda: {"topic after kill -9": create_after_kill(cluster)})
    return taken.measured


def after_kill(cluster: RunningCluster, topic: str, is_controller: bool) -> float:
    topic = topic.replace(" ", "-")
    leader = new_topic(cluster, topic, is_controller)
    return longest_gap(cluster, topic, cluster.nodes[leader].kill)


def after_pause(cluster: RunningCluster, pause_s: float) -> float:
    """The leader, which is not the active controller, comes back after `pause_s` and believes that it still leads."""
    leader = new_topic(cluster, "paused", is_controller=False)
    resume = threading.Timer(pause_s, cluster.resume, [leader])

    def pause() -> None:
        cluster.pause(leader)
        resume.start()

    try:
        return longest_gap(cluster, "paused", pause, min_s=pause_s + STEADY_S, settings=NOTICES_A_PAUSE)
    finally:
        resume.cancel()
        cluster.resume(leader)


def new_topic(cluster: RunningCluster, name: str, is_controller: bool) -> int:
    """A topic with one partition, whose leader is returned: the active controller or another node."""
    controller = cluster.active_controller()
    others = [node_id for node_id in cluster.nodes if node_id != controller]
    replicas = [controller, *others] if is_controller else [*others, controller]
    cluster.create_topic(NewTopic(name, num_partitions=1, replica_assignment=[replicas]))
    return replicas[0]


def restart(cluster: RunningCluster) -> None:
    """Brings back the node that was killed, and waits for its replicas."""
    dead = [node_id for node_id, node in cluster.nodes.items() if not node.is_alive()]
    cluster.start()
    cluster.wait_for_replicas(restarted=dead[0] if dead else 0)


def longest_gap(
    cluster: RunningCluster,
    topic: str,
    fault: Callable[[], None],
    min_s: float = 0.0,
    settings: dict[str, int] | None = None,
    is_over: Callable[[], bool] = lambda: True,
) -> float:
    """Sends a record every 10 ms, causes the fault, and ends when records sent after it are acknowledged.

    It goes on for at least `min_s` after the fault, and until the fault is over.
    """
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 0, **QUIET, **(settings or {})}
    )
    acknowledged: list[tuple[float, float]] = []  # when, and when it was sent

    def note(sent: float, error: KafkaError | None, _: object) -> None:
        if error is None:
            acknowledged.append((time.monotonic(), sent))

    def send_until(condition: Callable[[], bool]) -> None:
        began = time.monotonic()
        while not condition():
            now = time.monotonic()
            if now > max(began, acknowledged[-1][0] if acknowledged else began) + LIMIT_S:
                raise RuntimeError(f"no record of {topic} was acknowledged for {LIMIT_S:.0f} s")
            producer.produce(topic, b"record", partition=0, on_delivery=partial(note, now))
            while (left_s := now + INTERVAL_S - time.monotonic()) > 0:
                producer.poll(left_s)

    send_until(lambda: len(acknowledged) > STEADY_S / INTERVAL_S)
    last_before = acknowledged[-1][0]
    faulted = time.monotonic()
    fault()
    send_until(is_over)
    over = time.monotonic()
    send_until(lambda: acknowledged[-1][1] > over and time.monotonic() > faulted + min_s)
    times = [last_before, *(at for at, _ in acknowledged if at > last_before)]
    return max(later - earlier for earlier, later in itertools.pairwise(times))


SCENARIOS = (
    Scenario(
        "cluster-failover",
        "longest time without an acknowledged record of a partition, replication 3, acks=all, default timeouts: kill "
        "-9 of its leader, which is not or is the active controller; SIGSTOP of its leader for 30 s (quick: 12 s), "
        "with a client that waits 1 s for a response; and kill -9 of the active controller until a topic is created",
        (
            Metric("kill -9", "s", higher_is_better=False, target=3.0),
            Metric("kill -9 of the controller", "s", higher_is_better=False, target=3.0),
            Metric("SIGSTOP", "s", higher_is_better=False),
            Metric("topic after kill -9", "s", higher_is_better=False, target=1.0),
        ),
        run,
    ),
)
