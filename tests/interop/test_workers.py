"""`ottla serve --workers` with real brokers: one host as a cluster of its own, and hosts that form one cluster."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from tests.interop.brokers import free_ports
from tests.interop.librdkafka import read_records, take
from tests.interop.local_clusters import COMMAND, TIMEOUT_S, is_running, ottla, wait_until
from tests.interop.produce_load import Load

from ottla.cli.worker_plan import PORT_STEP

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
PARTITIONS = 6


def free_port(ports: int, address: str = "127.0.0.1") -> int:
    """For worker 1. Those that the other workers take are free as well: there are `ports` of them, with worker 1's."""
    while True:
        (port,) = free_ports(1)
        with contextlib.suppress(OSError), contextlib.ExitStack() as probes:
            for number in range(ports):
                probes.enter_context(socket.create_server((address, port + number * PORT_STEP)))
            return port


class Host:
    """A running `ottla serve --workers`."""

    def __init__(self, folder: Path, name: str, *options: str) -> None:
        self.ready_file, self.err = folder / f"{name}.ready", folder / f"{name}.err"
        command = [*COMMAND, "serve", "--ready-file", str(self.ready_file), *options]
        with self.err.open("wb") as err:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=err, text=True
            )

    def wait(self) -> "Host":
        wait_until(lambda: self.ready_file.exists() or self.process.poll() is not None, "it is ready")
        assert self.process.poll() is None, self.err.read_text()
        return self

    @property
    def bootstrap(self) -> str:
        return self.ready_file.read_text().strip()

    def pids(self) -> list[int]:
        """Of the workers, worker 1 first."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return sorted(map(int, children.split()))

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(TIMEOUT_S)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextlib.contextmanager
def host(folder: Path, name: str, *options: str) -> Iterator[Host]:
    running = Host(folder, name, *options)
    try:
        yield running
    finally:
        running.close()


@contextlib.contextmanager
def one_host(folder: Path, workers: int, *options: str, listen: str = "127.0.0.1:0") -> Iterator[Host]:
    data = ("--data", str(folder / "data"), "--listen", listen)
    with host(folder, f"host-{workers}", "--workers", str(workers), *data, *options) as running:
        yield running.wait()


def brokers(bootstrap: str) -> dict[int, str]:
    """Their states."""
    lines = ottla("brokers", "list", "--json", "--bootstrap", bootstrap).splitlines()
    return {broker["id"]: broker["state"] for broker in map(json.loads, lines)}


def wait_for_brokers(bootstrap: str, **states: list[int]) -> None:
    """`states` are their ids by state. The broker that answers may learn of them late."""
    expected = {broker: state for state, found in states.items() for broker in found}
    wait_until(lambda: brokers(bootstrap) == expected, f"the brokers are {states}")


def described(bootstrap: str, topic: str) -> list[dict[str, Any]]:
    """The partitions of a topic; empty if leaders change just now."""
    command = [*COMMAND, "topics", "describe", topic, "--json", "--bootstrap", bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    found: list[dict[str, Any]] = json.loads(done.stdout)["partitions"] if done.returncode == 0 else []
    return found


def partitions(bootstrap: str, topic: str) -> list[dict[str, Any]]:
    """Of a new topic, when they have leaders."""
    found: list[dict[str, Any]] = []

    def are_led() -> bool:
        found[:] = described(bootstrap, topic)
        return bool(found) and all(partition["leader"] is not None for partition in found)

    wait_until(are_led, f"all partitions of {topic} have leaders")
    return found


def consume_in_group(bootstrap: str, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        return [record.value() or b"" for record in take(consumer, count)]
    finally:
        consumer.close()


def are_in_sync(bootstrap: str, topic: str) -> bool:
    found = described(bootstrap, topic)
    return bool(found) and all(set(p["isr"]) == set(p["replicas"]) for p in found)


def test_two_workers_serve_as_two_brokers_and_stop_cleanly(tmp_path: Path) -> None:
    with one_host(tmp_path, 2, "--metrics", "127.0.0.1:0") as running:
        bootstrap, pids = running.bootstrap, running.pids()
        wait_for_brokers(bootstrap, active=[1, 1001])
        ottla("topics", "create", "orders", "-p", str(PARTITIONS), "--bootstrap", bootstrap)
        leaders = [partition["leader"] for partition in partitions(bootstrap, "orders")]
        assert sorted(leaders) == [1] * 3 + [1001] * 3
        ottla("produce", "orders", "--bootstrap", bootstrap, stdin="one\ntwo\n")
        # A group works: its topic has one replica, as on a single node.
        assert sorted(consume_in_group(bootstrap, "orders", 2)) == [b"one", b"two"]
        assert running.process.stdout is not None
        metrics = [running.process.stdout.readline().split() for _ in range(2)]
        for kind, url in metrics:
            assert kind == "metrics"
            with urllib.request.urlopen(url) as response:
                assert b"kafka_" in response.read()
        assert running.end() == 0, running.err.read_text()
        assert not any(map(is_running, pids))
        assert not running.ready_file.exists()


def test_nothing_acknowledged_is_lost_when_workers_die_under_load(tmp_path: Path) -> None:
    """First the broker, then the worker that is the controller too. Both come back by themselves."""
    with one_host(tmp_path, 2, listen=f"127.0.0.1:{free_port(2)}") as running:
        bootstrap = running.bootstrap
        create = ("-p", str(PARTITIONS), "-r", "2", "--config", "min.insync.replicas=1")
        ottla("topics", "create", "orders", *create, "--bootstrap", bootstrap)
        with Load(bootstrap, "orders", PARTITIONS) as load:
            for number in (1, 0):
                load.wait_for_more()
                victim = running.pids()[number]
                os.kill(victim, signal.SIGKILL)
                wait_until(
                    lambda: len(set(running.pids()) - {victim}) == 2,  # noqa: B023
                    "the worker is started again",
                )
                wait_until(lambda: are_in_sync(bootstrap, "orders"), "all replicas are in sync")
                load.wait_for_more()
        assert (load.errors, load.acknowledged) == ([], load.sent)
        records = read_records(bootstrap, "orders", load.sent, tuple(range(PARTITIONS)))
        assert sorted(int(record.value() or -1) for record in records) == list(range(load.sent))
        assert running.err.read_text().count("it is started again in 1 s") == 2
        assert running.end() == 0, running.err.read_text()


def test_the_number_of_workers_may_change(tmp_path: Path) -> None:
    """One node with its records becomes a host with three workers, and then has one again."""
    port = free_port(3)
    listen = f"127.0.0.1:{port}"
    with one_host(tmp_path, 1, listen=listen) as alone:
        ottla("produce", "orders", "--bootstrap", listen, stdin="one\n")
        assert alone.end() == 0
    with one_host(tmp_path, 3, listen=listen) as several:
        assert several.bootstrap == f"{listen},127.0.0.1:{port + 10},127.0.0.1:{port + 20}"
        wait_for_brokers(listen, active=[1, 1001, 2001])
        ottla("produce", "orders", "--bootstrap", listen, stdin="two\n")
        assert several.end() == 0, several.err.read_text()
    with one_host(tmp_path, 1, listen=listen):
        consumed = ottla("consume", "orders", "--bootstrap", listen)
        assert sorted(consumed.splitlines()) == ["one", "two"]
        wait_for_brokers(listen, active=[1], fenced=[1001, 2001])


def test_replicas_of_a_partition_go_to_different_hosts(tmp_path: Path) -> None:
    """Two hosts with two workers each, without racks."""
    ports = [free_port(3, "127.0.0.1"), free_port(2, "127.0.0.2")]
    controller_port = ports[0] + 2 * PORT_STEP
    cluster_id = ottla("format", "--random-cluster-id").strip()
    voters = f"controller.quorum.voters=1@127.0.0.1:{controller_port}"
    with contextlib.ExitStack() as stack:
        hosts = []
        for number, address in ((1, "127.0.0.1"), (2, "127.0.0.2")):
            listeners = f"PLAINTEXT://{address}:{ports[number - 1]}"
            roles = "broker,controller" if number == 1 else "broker"
            if number == 1:
                listeners += f",CONTROLLER://{address}:{controller_port}"
            data = tmp_path / f"host-{number}"
            config = tmp_path / f"{number}.properties"
            config.write_text(
                f"node.id={number}\nprocess.roles={roles}\nlisteners={listeners}\nlog.dirs={data}\n"
                f"{voters}\ncontroller.listener.names=CONTROLLER\ninter.broker.listener.name=PLAINTEXT\n"
            )
            options = ("--workers", "2", "--config", str(config))
            refused = Host(tmp_path, f"refused-{number}", *options)
            assert refused.process.wait(TIMEOUT_S) == 2
            assert "is not formatted" in refused.err.read_text()
            refused.close()
            ottla("format", "--config", str(config), "--cluster-id", cluster_id)
            hosts.append(stack.enter_context(host(tmp_path, f"host-{number}", *options)))
        bootstrap = hosts[0].wait().bootstrap
        hosts[1].wait()
        wait_for_brokers(bootstrap, active=[1, 1001, 2, 1002])
        ottla("topics", "create", "orders", "-p", "12", "-r", "2", "--bootstrap", bootstrap)
        placed = partitions(bootstrap, "orders")
        assert all(sorted(replica % 1000 for replica in p["replicas"]) == [1, 2] for p in placed)
        assert {replica for p in placed for replica in p["replicas"]} == {1, 1001, 2, 1002}
        for running in reversed(hosts):
            assert running.end() == 0, running.err.read_text()


def test_no_worker_outlives_a_killed_supervisor(tmp_path: Path) -> None:
    with one_host(tmp_path, 2) as running:
        pids = running.pids()
        running.end(signal.SIGKILL)
        wait_until(lambda: not any(map(is_running, pids)), "every worker has ended")


def test_a_port_in_use_stops_the_command(tmp_path: Path) -> None:
    with one_host(tmp_path, 2) as running:
        address = running.bootstrap.split(",")[0]
        options = ("--workers", "2", "--data", str(tmp_path / "other"), "--listen", address)
        with host(tmp_path, "second", *options) as refused:
            assert refused.process.wait(TIMEOUT_S) == 2
            assert "before all workers were ready" in refused.err.read_text()
