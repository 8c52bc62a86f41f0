"""The pytest plugin, in runs of pytest of their own."""

import os
import signal
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from ottla.testing.helpers import wait_until

pytest_plugins = ["pytester"]
ROOT = Path(__file__).parents[3]
PLUGIN = "ottla.testing.pytest_plugin"


@pytest.fixture
def pytest_run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Loads the plugin by its name: the entry point is there only if this version of Ottla is installed."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_ADDOPTS", f"-p {PLUGIN}")
    return pytester


def test_pytest_finds_the_plugin_by_its_entry_point():
    with (ROOT / "pyproject.toml").open("rb") as file:
        (name,) = tomllib.load(file)["project"]["entry-points"]["pytest11"].values()
    assert name == PLUGIN
    assert import_module(name).kafka


def test_the_import_of_the_plugin_loads_nothing_of_the_broker():
    program = (
        f"import sys, {PLUGIN}\n"
        "print([name for name in sys.modules if name.startswith(('ottla', 'confluent', 'kio', 'uvloop'))])"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    ).stdout
    assert loaded.strip() == f"['ottla', 'ottla.testing', '{PLUGIN}']"


@pytest.mark.slow
def test_tests_share_a_broker_and_have_topics_of_their_own(pytest_run: pytest.Pytester):
    pytest_run.makepyfile(
        """
        import pytest

        def test_a_fault_that_stays(kafka, kafka_topic):
            kafka.fail("Produce", "TOPIC_AUTHORIZATION_FAILED", times=None)
            kafka.stop()
            kafka.fill_disk()

        @pytest.mark.parametrize("value", ["ü/{}", "b"])
        def test_a_topic(kafka, kafka_topic, value):
            kafka.produce(kafka_topic, value)
            assert [record.value for record in kafka.wait_for(kafka_topic, 1)] == [value.encode()]
        """
    )
    pytest_run.runpytest_subprocess().assert_outcomes(passed=3)


@pytest.mark.slow
def test_a_failed_cleanup_is_an_error_of_the_test(pytest_run: pytest.Pytester):
    pytest_run.makepyfile(
        """
        import threading
        from ottla.testing import broker_thread

        released = threading.Event()

        def test_that_blocks_the_broker(kafka):
            entered = threading.Event()

            def block(request):
                entered.set()
                released.wait(60)

            kafka.control("Metadata", block, times=1)
            broker_thread._CALL_TIMEOUT_S = 0.2
            threading.Thread(target=lambda: kafka.produce("orders", "1 pear"), daemon=True).start()
            assert entered.wait(60)

        def test_without_kafka():
            released.set()
            broker_thread._CALL_TIMEOUT_S = 60
        """
    )
    result = pytest_run.runpytest_subprocess()
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*_ ERROR at teardown of test_that_blocks_the_broker _*"])
    assert "INTERNALERROR" not in result.stdout.str() + result.stderr.str()


@pytest.mark.slow
def test_a_test_that_runs_again_begins_without_faults(pytest_run: pytest.Pytester):
    pytest_run.makeconftest(
        """
        from _pytest.runner import runtestprotocol

        def pytest_runtest_protocol(item, nextitem):  # as pytest-rerunfailures
            runtestprotocol(item, nextitem=item.parent, log=False)
            item._initrequest()
            runtestprotocol(item, nextitem=nextitem)
            return True
        """
    )
    pytest_run.makepyfile(
        """
        runs = []

        def test_again(kafka, kafka_topic):
            runs.append(len(kafka._faults))
            kafka.fail("Produce", "TOPIC_AUTHORIZATION_FAILED", times=None)
            assert runs in ([0], [0, 0])
        """
    )
    pytest_run.runpytest_subprocess().assert_outcomes(passed=1)


@pytest.mark.slow
def test_the_configs_of_the_broker_can_be_chosen(pytest_run: pytest.Pytester):
    pytest_run.makepyfile(
        """
        import pytest

        @pytest.fixture(scope="session")
        def kafka_config():
            return {"num.partitions": 3}

        def test_partitions(kafka):
            kafka.produce("orders", "1 pear")
            assert kafka._cluster.partitions_of("orders") == [0, 1, 2]
        """
    )
    pytest_run.runpytest_subprocess().assert_outcomes(passed=1)


@pytest.mark.slow
def test_the_log_stands_in_the_report_of_a_failing_test(pytest_run: pytest.Pytester):
    pytest_run.makepyfile(
        """
        def test_without_kafka():
            assert False

        def test_before(kafka):
            kafka.create_topic("before")

        def test_with_kafka(kafka):
            kafka.fail("Produce", "INVALID_RECORD")
            kafka.restart()
            assert False
        """
    )
    result = pytest_run.runpytest_subprocess()
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(
        ["*_ test_with_kafka _*", "*- Kafka's log -*", "*has stopped*", "*serves on*"]
    )
    assert result.stdout.str().count("- Kafka's log -") == 1
    assert result.stdout.str().count("serves on") == 1


@pytest.mark.slow
def test_each_worker_of_xdist_has_a_broker(pytest_run: pytest.Pytester):
    pytest.importorskip("xdist")
    pytest_run.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("number", range(4))
        def test_a_topic(kafka, number):
            kafka.create_topic("the-same-name" + str(number))
        """
    )
    pytest_run.runpytest_subprocess("-p", "xdist", "-n", "2").assert_outcomes(passed=4)


@pytest.mark.slow
def test_ctrl_c_during_a_test_leaves_nothing_behind(
    pytest_run: pytest.Pytester, tmp_path_factory: pytest.TempPathFactory
):
    temporary = tmp_path_factory.mktemp("temporary")
    pytest_run.makepyfile(
        """
        import signal, time
        from pathlib import Path

        signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it

        def test_that_waits(kafka, kafka_topic):
            Path("started").touch()
            time.sleep(600)
        """
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest"],
        cwd=pytest_run.path,
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    with process:
        started = pytest_run.path / "started"
        assert wait_until(lambda: started.exists() or process.poll() is not None, 200)
        assert list(temporary.glob("ottla-testing-*"))
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=200)
    assert b"KeyboardInterrupt" in output
    assert not list(temporary.glob("ottla-testing-*"))


@pytest.mark.slow
def test_a_cluster_ends_with_its_test(pytest_run: pytest.Pytester):
    pytest_run.makepyfile(
        """
        pids = []

        def test_a_cluster(kafka_cluster):
            kafka = kafka_cluster(1)
            pids.extend(node.pid for node in kafka._nodes.values())
            kafka.produce("orders", "1 pear")
            assert not kafka.wait_for("orders", 1)

        def test_it_has_ended():
            from pathlib import Path
            assert pids and not any(Path(f"/proc/{pid}").exists() for pid in pids)
        """
    )
    result = pytest_run.runpytest_subprocess()
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*- log of Kafka's node 1 -*", "*ready 127.0.0.1:*"])
