"""Hosts with addresses of their own, as network namespaces of this machine. Links can be cut one way or both ways, and
can be slow and lossy.

    with network_hosts(3) as network:
        process = Popen([*network.hosts[1].prefix, "ottla", "serve", ...])
        network.cut(1, 2)

Every host has a link to a router, which is a namespace too, and so has this machine, on which the clients run. The
router drops what is cut without a reply to the sender, as a broken cable does.
"""

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

_CLIENTS = 0  # the number of this machine beside those of the hosts
_BURST, _QUEUE = "16kb", "30kb"  # of a slow link


@dataclass(frozen=True)
class Host:
    """Commands that begin with `prefix` run on the host."""

    address: str
    prefix: tuple[str, ...]


@dataclass
class Network:
    hosts: dict[int, Host]
    _names: "_Names"
    _rules: list[tuple[str, ...]] = field(default_factory=list)
    _slow: list[tuple[str, str]] = field(default_factory=list)  # namespaces and their ends of links

    def cut_one_way(self, sender: int, receiver: int) -> None:
        """Drops everything that `sender` sends to `receiver`."""
        ends = ("from", self.hosts[sender].address, "to", self.hosts[receiver].address, "blackhole")
        _ip("-n", self._names.router, "rule", "add", *ends)
        self._rules.append(ends)

    def cut(self, first: int, second: int) -> None:
        self.cut_one_way(first, second)
        self.cut_one_way(second, first)

    def slow_down(self, host: int, rate: str) -> None:
        """Both directions of the host's link: a short queue at this rate, which drops what does not fit.

        The bucket filter is in kernels that have no emulator of networks (netem). Skips the test where it is missing.
        """
        names = self._names
        for end in ((names.namespace(host), names.link(host)), (names.router, names.router_link(host))):
            try:
                _tc(end, "add", "tbf", "rate", rate, "burst", _BURST, "limit", _QUEUE)
            except (OSError, subprocess.CalledProcessError) as error:
                pytest.skip(f"no link can be slowed down here: {_reason(error)}")
            self._slow.append(end)

    def lost_packets(self) -> int:
        """What the queues of slow links have dropped."""
        shown = [
            json.loads(_run("tc", "-n", namespace, "-j", "-s", "qdisc", "show", "dev", link))
            for namespace, link in self._slow
        ]
        return sum(queue["drops"] for queues in shown for queue in queues)

    def heal(self) -> None:
        while self._rules:
            _ip("-n", self._names.router, "rule", "del", *self._rules.pop())
        while self._slow:
            _tc(self._slow.pop(), "del")


@contextlib.contextmanager
def network_hosts(count: int) -> Iterator[Network]:
    """Hosts 1 to `count`. The test is skipped if namespaces are not permitted here."""
    number = os.getpid() % (1 << 14)  # so that tests in other processes have other names and addresses
    names = _Names(f"ottla{number}", f"10.{192 + (number >> 8)}.{number & 255}")
    with contextlib.ExitStack() as undo:
        try:
            _create(names.router, undo)
            _ip("netns", "exec", names.router, "sysctl", "-q", "-w", "net.ipv4.ip_forward=1")
            for host in range(_CLIENTS, count + 1):
                if host != _CLIENTS:
                    _create(names.namespace(host), undo)
                _connect(names, host)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no network namespaces can be created here: {_reason(error)}")
        hosts = {
            host: Host(names.address(host), ("ip", "netns", "exec", names.namespace(host)))
            for host in range(1, count + 1)
        }
        yield Network(hosts, names)


@dataclass(frozen=True)
class _Names:
    prefix: str
    subnet: str

    @property
    def router(self) -> str:
        return f"{self.prefix}r"

    def namespace(self, host: int) -> str:
        return f"{self.prefix}n{host}"

    def link(self, host: int) -> str:
        return f"{self.prefix}v{host}"

    def router_link(self, host: int) -> str:
        """The router's end."""
        return f"{self.link(host)}r"

    def address(self, host: int) -> str:
        return f"{self.subnet}.{4 * host + 2}"

    def router_address(self, host: int) -> str:
        return f"{self.subnet}.{4 * host + 1}"


def _create(namespace: str, undo: contextlib.ExitStack) -> None:
    _ip("netns", "add", namespace)
    undo.callback(_ip, "netns", "del", namespace)  # its links disappear with it
    _ip("-n", namespace, "link", "set", "lo", "up")


def _connect(names: _Names, host: int) -> None:
    """Connects a host, or this machine, with the router."""
    link, in_router = names.link(host), names.router_link(host)
    at_host = () if host == _CLIENTS else ("-n", names.namespace(host))
    at_router = ("-n", names.router)
    peer = ("type", "veth", "peer", "name", in_router, "netns", names.router)
    _ip(*at_host, "link", "add", link, *peer)
    for at, name, address in (
        (at_host, link, names.address(host)),
        (at_router, in_router, names.router_address(host)),
    ):
        _ip(*at, "address", "add", f"{address}/30", "dev", name)
        _ip(*at, "link", "set", name, "up")
    _ip(*at_host, "route", "add", f"{names.subnet}.0/24", "via", names.router_address(host))


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _tc(end: tuple[str, str], action: str, *queue: str) -> None:
    namespace, link = end
    _run("tc", "-n", namespace, "qdisc", action, "dev", link, "root", *queue)


def _run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _reason(error: OSError | subprocess.CalledProcessError) -> str:
    return str(error.stderr).strip() if isinstance(error, subprocess.CalledProcessError) else str(error)
