"""The dashboard and the alert rules of `monitoring/`, in a real Prometheus that scrapes a real cluster."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.interop.librdkafka import wait_until
from tests.interop.prometheus import Prometheus, promtool, run_prometheus, why_no_prometheus

from ottla.admin.cluster import ClusterError
from ottla.testing import KafkaCluster

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(why_no_prometheus()), reason=why_no_prometheus())]
PATIENCE_S = 90.0
MONITORING = Path(__file__).parents[2] / "monitoring"
ALERTS = MONITORING / "alerts.yml"
DASHBOARD = json.loads((MONITORING / "grafana-dashboard.json").read_text())
# What Grafana puts in for its variables: all nodes, topics and groups, and several scrapes. A rate needs two of them,
# and the machine may be too busy for one each second.
VARIABLES = {"$__rate_interval": "30s", "$instance": ".*", "$topic": ".*", "$group": ".*"}
EXAMPLE_TARGETS = '["127.0.0.1:9404", "127.0.0.1:9405", "127.0.0.1:9406"]'
ALERT_THRESHOLD = re.compile(r" (?:==|!=|<|>) [\d.]+$")


def expressions() -> list[str]:
    """Those of all panels of the dashboard."""
    found = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]
    for name, value in VARIABLES.items():
        found = [expression.replace(name, value) for expression in found]
    assert found
    assert not [expression for expression in found if "$" in expression]
    return found


@contextmanager
def running_cluster() -> Iterator[KafkaCluster]:
    """Three nodes with metrics, a topic with records, a group that is behind, and a transaction."""
    with KafkaCluster(3, {"ottla.metrics.address": "127.0.0.1:0"}) as cluster:
        topic = cluster.create_topic("orders", partitions=3)
        cluster.produce(topic, *map(str, range(30)))
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "billing"})
        consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
        consumer.close()
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "billing"})
        producer.init_transactions(60)
        yield cluster


@contextmanager
def scraping_prometheus(cluster: KafkaCluster, folder: Path) -> Iterator[Prometheus]:
    """The configuration of `monitoring/` with the addresses of the cluster, and a scrape each second."""
    targets = re.findall(r"^metrics http://(\S+)/metrics$", "\n".join(map(cluster.log, cluster.nodes)), re.M)
    assert len(targets) == 3
    config = (MONITORING / "prometheus.yml").read_text()
    for old, new in (
        ("_interval: 15s", "_interval: 1s"),
        (EXAMPLE_TARGETS, json.dumps(targets)),
        ("alerts.yml", str(ALERTS)),
    ):
        assert old in config
        config = config.replace(old, new)
    (folder / "prometheus.yml").write_text(config)
    with run_prometheus(folder / "prometheus.yml", folder) as prometheus:
        wait_until(
            lambda: len(prometheus.query('up{job="ottla"} == 1')) == 3, "all nodes are scraped", PATIENCE_S
        )
        yield prometheus


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with running_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def prometheus(cluster: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with scraping_prometheus(cluster, tmp_path_factory.mktemp("prometheus")) as prometheus:
        yield prometheus


def rules(prometheus: Prometheus) -> list[Any]:
    return [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]


def has_series(prometheus: Prometheus, expression: str) -> bool:
    return bool(prometheus.query(expression))


def test_promtool_accepts_the_rules_and_the_configuration() -> None:
    assert "SUCCESS" in promtool("check", "rules", ALERTS)
    assert "SUCCESS" in promtool("check", "config", MONITORING / "prometheus.yml")


@pytest.mark.parametrize("expression", expressions())
def test_each_panel_of_the_dashboard_shows_values(
    cluster: KafkaCluster, prometheus: Prometheus, expression: str
) -> None:
    def has_values() -> bool:
        with suppress(ClusterError):  # a stall of a node makes another one the leader
            cluster.produce("orders", "3 apples")  # a rate needs traffic
            cluster.records("orders")
        return bool(prometheus.query(expression))

    wait_until(has_values, f"{expression} has a series", PATIENCE_S)


def test_each_alert_reads_metrics_that_exist_and_is_silent_for_a_healthy_cluster(
    prometheus: Prometheus,
) -> None:
    loaded = rules(prometheus)
    assert len(loaded) == ALERTS.read_text().count("- alert:")
    for rule in loaded:
        measured, count = ALERT_THRESHOLD.subn("", rule["query"])
        assert count == 1, rule["query"]
        wait_until(partial(has_series, prometheus, measured), f"{measured} has a series", PATIENCE_S)
    wait_until(
        lambda: all(rule["health"] == "ok" for rule in rules(prometheus)), "all rules have been evaluated"
    )
    firing = [rule["name"] for rule in rules(prometheus) if rule["state"] == "firing"]
    assert not [name for name in firing if "Disk" not in name]  # the machine's disk may be full


def test_a_node_that_is_killed_raises_the_alerts_for_it(tmp_path: Path) -> None:
    expected = {"OttlaNodeDown", "OttlaFencedBrokers", "OttlaUnderReplicatedPartitions"}
    with running_cluster() as cluster, scraping_prometheus(cluster, tmp_path) as prometheus:

        def raised() -> set[str]:
            return {alert["labels"]["alertname"] for alert in prometheus.ask("alerts")["alerts"]}

        # A scrape that took too long makes an alert pending until the next one.
        wait_until(lambda: not expected & raised(), f"none of the alerts {expected} is pending", PATIENCE_S)
        cluster.kill(3)
        wait_until(lambda: expected <= raised(), f"the alerts {expected} are pending", PATIENCE_S)
