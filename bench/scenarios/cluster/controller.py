"""The time from kill -9 of the active controller until a topic can be created."""

import threading
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from tests.interop.kio_client import KioClient, errors_in

from bench.nodes import TIMEOUT_S, RunningCluster

CREATE_TOPICS, VERSION = 19, 7
REQUEST_TIMEOUT_MS = 5_000
RETRY_S = 0.02


def create_after_kill(cluster: RunningCluster) -> float:
    """Asks both survivors all the time, on plain sockets: a client library may have chosen the dead node."""
    cluster.nodes[cluster.active_controller()].kill()
    killed = time.monotonic()
    done = threading.Event()
    survivors = [node.bootstrap for node in cluster.running]
    with ThreadPoolExecutor(len(survivors)) as pool:
        asked = [pool.submit(_create, bootstrap, done, number) for number, bootstrap in enumerate(survivors)]
        created: set[Future[float]] = wait(asked, TIMEOUT_S, return_when=FIRST_COMPLETED).done
        done.set()
    if not created:
        raise RuntimeError(f"no topic could be created within {TIMEOUT_S:.0f} s of kill -9")
    return min(future.result() for future in created) - killed


def _create(bootstrap: str, done: threading.Event, number: int) -> float:
    """Tries until a topic is created, and returns when that was; infinity if `done` is set before."""
    attempt = 0
    while not done.is_set():
        attempt += 1
        topic = {
            "name": f"after-kill-{number}-{attempt}",
            "num_partitions": 1,
            "replication_factor": 1,
            "assignments": (),
            "configs": (),
        }
        try:
            client = KioClient(bootstrap, timeout_s=REQUEST_TIMEOUT_MS / 1_000 + 1)
            try:
                response = client.ask(CREATE_TOPICS, VERSION, topics=(topic,), timeout=REQUEST_TIMEOUT_MS)
            finally:
                client.close()
            if not errors_in(response):
                return time.monotonic()
        except OSError:
            pass  # it did not respond in time: ask again
        time.sleep(RETRY_S)
    return float("inf")
