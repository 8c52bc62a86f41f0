"""Brokers for the interop tests: one Ottla that most tests share, and with `--oracle` Apache Kafka beside it.

A test marked `contract` states what any Kafka broker does. With `--oracle` it runs on Apache Kafka too, which
proves the test itself.
"""

import contextlib
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.interop.brokers import RunningBroker, run_kafka, run_ottla
from tests.interop.class_archive import ensure_class_archive
from tests.interop.clusters import Cluster
from tests.interop.foreign_members import ForeignMembers
from tests.interop.group_clients import GROUP_BROKER, Members
from tests.interop.kafka_jars import ensure_jars, why_no_jars
from tests.interop.transaction_clients import TRANSACTION_BROKER

SMALL_DISK = "size=12m"
BrokerStarter = Callable[..., contextlib.AbstractContextManager[RunningBroker]]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--oracle", action="store_true", help="run contract tests on Apache Kafka as well")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "contract: states what any Kafka broker does; also run on Kafka with --oracle"
    )
    # kafka-python calls a deprecated function of the standard library when it is imported.
    config.addinivalue_line("filterwarnings", r"ignore:(read|open)_text is deprecated:DeprecationWarning")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "broker_kind" in metafunc.fixturenames:
        oracle = metafunc.config.getoption("--oracle", default=False)
        is_contract = metafunc.definition.get_closest_marker("contract") is not None
        metafunc.parametrize("broker_kind", ["ottla", "kafka"] if oracle and is_contract else ["ottla"])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("java") is not None:
            item.add_marker(pytest.mark.usefixtures("kafka_libs"))


@pytest.fixture(scope="session")
def kafka_libs() -> Path:
    """The folder of Apache Kafka's jars; skips the test with the reason if they are not available."""
    libs = ensure_jars()
    if libs is None:
        pytest.skip(why_no_jars())
    ensure_class_archive()
    return libs


@pytest.fixture(scope="session")
def shared_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., RunningBroker]]:
    """Starts a broker of each kind when it is first needed, and keeps it for the whole session."""
    running: dict[tuple[str, str], RunningBroker] = {}
    with contextlib.ExitStack() as stack:

        def get(kind: str, name: str = "any", **options: object) -> RunningBroker:
            if (kind, name) not in running or not running[kind, name].is_alive():
                data_dir = tmp_path_factory.mktemp(kind) / "data"
                running[kind, name] = stack.enter_context(starter_of(kind)(data_dir, **options))
            return running[kind, name]

        yield get


@pytest.fixture
def broker(broker_kind: str, shared_brokers: Callable[..., RunningBroker]) -> RunningBroker:
    """The shared broker: a test creates its own topics and does not change the broker's configs."""
    return shared_brokers(broker_kind)


@pytest.fixture
def group_broker(broker_kind: str, shared_brokers: Callable[..., RunningBroker]) -> RunningBroker:
    """The shared broker for groups, without rebalance delay and with short sessions. A test uses its own group."""
    return shared_brokers(broker_kind, "groups", set=GROUP_BROKER)


@pytest.fixture
def transaction_broker(broker_kind: str, shared_brokers: Callable[..., RunningBroker]) -> RunningBroker:
    """The shared broker for transactions. A test uses its own transactional ids."""
    return shared_brokers(broker_kind, "transactions", set=TRANSACTION_BROKER)


@pytest.fixture
def transactional_id() -> str:
    return f"txn-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def members() -> Iterator[Members]:
    """Starts members as processes, and kills the remaining ones at the end."""
    started = Members()
    yield started
    started.kill_all()


@pytest.fixture
def foreign_members() -> Iterator[ForeignMembers]:
    """Likewise, with clients other than librdkafka."""
    started = ForeignMembers()
    yield started
    started.kill_all()


@pytest.fixture
def own_broker(broker_kind: str, tmp_path: Path) -> Iterator[Callable[..., RunningBroker]]:
    """Starts a broker for this test alone: `own_broker(set={...})`."""
    with contextlib.ExitStack() as stack:

        def start(**options: object) -> RunningBroker:
            return stack.enter_context(
                starter_of(broker_kind)(tmp_path / f"data-{uuid.uuid4().hex[:6]}", **options)
            )

        yield start


@pytest.fixture
def topic_name() -> str:
    return f"topic-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def group_id() -> str:
    return f"group-{uuid.uuid4().hex[:12]}"


def starter_of(kind: str) -> BrokerStarter:
    if kind == "kafka":
        if ensure_jars() is None:
            pytest.skip(why_no_jars())
        return run_kafka
    return run_ottla


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """A failed test shows the logs of its brokers."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    for broker in getattr(item, "funcargs", {}).values():
        if report.failed and isinstance(broker, RunningBroker):
            report.sections.append((f"output of {broker.name}", broker.log_tail()))
        if report.failed and isinstance(broker, Cluster):
            report.sections += [(f"output of {node}", node.log_tail()) for node in broker.nodes.values()]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints the measured latencies, which no test asserts as absolute values."""
    reports = [report for name in ("passed", "failed") for report in terminalreporter.getreports(name)]
    lines = [str(text) for report in reports for name, text in report.user_properties if name == "latency"]
    if lines:
        terminalreporter.section("measured in this run (not asserted)")
        for line in lines:
            terminalreporter.write_line(line)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mounts file systems of a few megabytes; the test is skipped if that is not permitted."""
    mounted: list[Path] = []

    def mount(name: str) -> Path:
        path = tmp_path / name
        path.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", SMALL_DISK, "tmpfs", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"no small file system can be mounted here: {done.stderr.strip()}")
        mounted.append(path)
        return path

    yield mount
    for path in mounted:
        subprocess.run(["umount", str(path)], check=True)
