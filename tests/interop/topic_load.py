"""A client that creates topics as long as the quorum of a cluster commits."""

import contextlib
import threading

from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic
from tests.interop.cluster_clients import admin_of
from tests.interop.clusters import Cluster


class TopicLoad:
    """Creates one topic after the other. `created` are those that were acknowledged."""

    def __init__(self, cluster: Cluster) -> None:
        self.created: list[str] = []
        self._cluster = cluster
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "TopicLoad":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        admin, count = admin_of(self._cluster), 0
        while not self._ended.is_set():
            count += 1
            name = f"load-{count}"
            with contextlib.suppress(KafkaException):
                admin.create_topics([NewTopic(name, 1, 1)], request_timeout=10)[name].result(20)
                self.created.append(name)

    def wait_for_more(self) -> None:
        """The quorum commits: two more topics are acknowledged."""
        count = len(self.created)
        self._cluster.wait_until(lambda: len(self.created) >= count + 2, "two more topics are created")


def check_topics(cluster: Cluster, created: list[str]) -> None:
    assert created
    for node in cluster.running_brokers:
        cluster.wait_until(
            lambda node=node: set(created) <= set(admin_of(cluster).list_topics(timeout=10).topics),  # type: ignore[misc]
            f"{node} has all topics",
        )
