"""A client that creates topics as long as the quorum of a cluster commits."""

import threading
from collections.abc import Sequence

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
            try:
                admin.create_topics([NewTopic(name, 1, 1)], request_timeout=10)[name].result(20)
                self.created.append(name)
            except KafkaException:
                # This client would send its next request to the node that did not respond.
                admin = admin_of(self._cluster)

    def wait_for_more(self) -> None:
        """The quorum commits: two more topics are acknowledged."""
        count = len(self.created)
        self._cluster.wait_until(lambda: len(self.created) >= count + 2, "two more topics are created")


def check_topics(cluster: Cluster, created: Sequence[str]) -> None:
    """Every running broker knows all these topics."""
    assert created
    wanted = tuple(created)  # more may be created meanwhile
    for node in cluster.running_brokers:
        cluster.wait_until(
            lambda id=node.node_id: cluster.knows(id, wanted),  # type: ignore[misc]
            f"{node} has all topics",
        )
