"""Apache Kafka's own Java client and console tools, unmodified, from its jars."""

import json
import re
import subprocess
from functools import partial
from pathlib import Path

import pytest
from tests.interop.brokers import RunningBroker
from tests.interop.kafka_jars import java_command
from tests.interop.kafka_tools import TIMEOUT_S, Tools
from tests.interop.librdkafka import create_topic, produce_values, wait_until

pytestmark = [pytest.mark.contract, pytest.mark.java]

JAVA = Path(__file__).parent / "java"


@pytest.fixture
def tools(kafka_libs: Path, broker: RunningBroker) -> Tools:
    return Tools(kafka_libs, broker.bootstrap)


@pytest.fixture(scope="session")
def compiled(kafka_libs: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of our own Java classes, compiled against Kafka's jars."""
    target = tmp_path_factory.mktemp("classes")
    source = str(JAVA / "ClientContract.java")
    try:
        subprocess.run(
            ["javac", "-cp", f"{kafka_libs}/*", "-d", str(target), source],
            check=True,
            capture_output=True,
            text=True,
        )
    except FileNotFoundError:
        pytest.skip("no `javac` on the PATH: the Java client's test program cannot be compiled")
    except subprocess.CalledProcessError as error:
        pytest.fail(f"{source} does not compile:\n{error.stderr}")
    return str(target)


@pytest.mark.parametrize("check", ["codecs", "headers", "large", "offsets", "admin", "sessions", "range"])
def test_the_java_client_finds_what_it_expects(
    kafka_libs: Path, broker: RunningBroker, compiled: str, topic_name: str, check: str
) -> None:
    run = partial(Tools(kafka_libs, broker.bootstrap).run, classpath=compiled)
    assert run("ClientContract", broker.bootstrap, topic_name, check) == f"ok {check}\n"


def test_topic_command_creates_lists_describes_alters_and_deletes(tools: Tools, topic_name: str) -> None:
    command = "org.apache.kafka.tools.TopicCommand"
    created = tools(
        command, "--create", "--topic", topic_name, "--partitions", "2", "--config", "retention.ms=60000"
    )
    assert f"Created topic {topic_name}" in created
    assert topic_name in tools(command, "--list").splitlines()
    tools(command, "--alter", "--topic", topic_name, "--partitions", "4")
    described = tools(command, "--describe", "--topic", topic_name)
    assert "PartitionCount: 4" in described
    assert "ReplicationFactor: 1" in described
    assert "retention.ms=60000" in described
    tools(command, "--delete", "--topic", topic_name)
    wait_until(lambda: topic_name not in tools(command, "--list").splitlines(), "the topic is gone")


def test_console_producer_and_console_consumer_pass_keys_and_headers(tools: Tools, topic_name: str) -> None:
    line = ("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true")
    tools(
        "org.apache.kafka.tools.ConsoleProducer",
        "--topic",
        topic_name,
        *line,
        stdin="h:1\tk1\tv1\nh:2\tk2\tv2\n",
    )
    printed = ("key", "headers", "offset", "partition")
    shown = [part for name in printed for part in ("--formatter-property", f"print.{name}=true")]
    read = tools(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--topic", topic_name, "--partition", "0", "--offset", "earliest", "--max-messages", "2", *shown),
    )
    assert read.splitlines() == ["Partition:0\tOffset:0\th:1\tk1\tv1", "Partition:0\tOffset:1\th:2\tk2\tv2"]


def test_producer_performance_gets_every_record_acknowledged(tools: Tools, topic_name: str) -> None:
    result = tools(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic_name, "--num-records", "20000", "--record-size", "1000", "--throughput", "-1"),
    )
    assert "20000 records sent" in result.splitlines()[-1]


def test_verifiable_producer_gets_every_record_acknowledged(tools: Tools, topic_name: str) -> None:
    printed = tools(
        "org.apache.kafka.tools.VerifiableProducer", "--topic", topic_name, "--max-messages", "500"
    )
    events = [json.loads(line) for line in printed.splitlines()]
    assert sum(event["name"] == "producer_send_success" for event in events) == 500
    assert [(event["sent"], event["acked"]) for event in events if event["name"] == "tool_data"] == [
        (500, 500)
    ]


def test_end_to_end_latency_sees_each_record(
    kafka_libs: Path, broker: RunningBroker, topic_name: str
) -> None:
    create_topic(broker.bootstrap, topic_name)
    args = ("--bootstrap-server", broker.bootstrap, "--topic", topic_name, "--num-records", "1000")
    command = java_command(
        kafka_libs,
        *("org.apache.kafka.tools.EndToEndLatency", *args, "--producer-acks", "all", "--record-size", "100"),
    )
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    # It commits an offset at the end, which a broker without groups rejects; only its measurements count here.
    assert "Percentiles: 50th" in done.stdout, done.stderr


def test_get_offset_shell_lists_both_ends(tools: Tools, broker: RunningBroker, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name)
    produce_values(broker.bootstrap, topic_name, [b"a", b"b", b"c"])
    for time, offset in (("earliest", 0), ("latest", 3), ("-1", 3), ("-2", 0)):
        listed = tools("org.apache.kafka.tools.GetOffsetShell", "--topic", topic_name, "--time", time)
        assert listed == f"{topic_name}:0:{offset}\n"


def test_config_command_describes_and_alters_topic_and_broker(
    tools: Tools, broker: RunningBroker, topic_name: str
) -> None:
    create_topic(broker.bootstrap, topic_name)
    command = "kafka.admin.ConfigCommand"
    of_topic = ("--entity-type", "topics", "--entity-name", topic_name)
    tools(command, "--alter", *of_topic, "--add-config", "retention.ms=60000,cleanup.policy=[compact,delete]")
    described = tools(command, "--describe", *of_topic)
    assert "retention.ms=60000" in described
    assert "cleanup.policy=compact,delete" in described
    tools(command, "--alter", *of_topic, "--delete-config", "retention.ms,cleanup.policy")
    wait_until(lambda: "retention.ms" not in tools(command, "--describe", *of_topic), "retention.ms is unset")
    of_brokers = ("--entity-type", "brokers", "--entity-default")
    tools(command, "--alter", *of_brokers, "--add-config", "log.cleaner.threads=2")
    assert "log.cleaner.threads=2" in tools(command, "--describe", *of_brokers)
    tools(command, "--alter", *of_brokers, "--delete-config", "log.cleaner.threads")


def test_config_command_describes_and_alters_the_level_of_a_logger(tools: Tools) -> None:
    command, of_loggers = (
        "kafka.admin.ConfigCommand",
        ("--entity-type", "broker-loggers", "--entity-name", "1"),
    )

    def levels() -> dict[str, str]:
        return dict(
            re.findall(r"^\s+(\S+)=([A-Z]+)", tools(command, "--describe", *of_loggers), re.MULTILINE)
        )

    before = levels()
    logger = min(before.keys() - {"root"})
    tools(command, "--alter", *of_loggers, "--add-config", f"{logger}=TRACE")
    assert levels() == before | {logger: "TRACE"}
    tools(command, "--alter", *of_loggers, "--delete-config", logger)
    assert levels()[logger] == before["root"]


def test_delete_records_command_moves_the_log_start(
    tools: Tools, broker: RunningBroker, topic_name: str, tmp_path: Path
) -> None:
    create_topic(broker.bootstrap, topic_name)
    produce_values(broker.bootstrap, topic_name, [b"a", b"b", b"c"])
    wanted = {"version": 1, "partitions": [{"topic": topic_name, "partition": 0, "offset": 2}]}
    (tmp_path / "offsets.json").write_text(json.dumps(wanted))
    done = tools(
        "org.apache.kafka.tools.DeleteRecordsCommand", "--offset-json-file", str(tmp_path / "offsets.json")
    )
    assert "low_watermark: 2" in done


def test_log_dirs_command_shows_the_size_of_the_partition(
    tools: Tools, broker: RunningBroker, topic_name: str
) -> None:
    create_topic(broker.bootstrap, topic_name)
    produce_values(broker.bootstrap, topic_name, [b"x" * 1_000])
    shown = tools("org.apache.kafka.tools.LogDirsCommand", "--describe", "--topic-list", topic_name)
    described = json.loads(shown.splitlines()[-1])
    (replica,) = [p for d in described["brokers"][0]["logDirs"] for p in d["partitions"]]
    assert replica["partition"] == f"{topic_name}-0"
    assert 1_000 < replica["size"] < 1_200
    assert replica["offsetLag"] == 0


def test_broker_api_versions_command_knows_every_api_that_we_offer(
    tools: Tools, broker: RunningBroker
) -> None:
    listed = tools("org.apache.kafka.tools.BrokerApiVersionsCommand")
    assert broker.bootstrap in listed
    for api, newest in (("Produce(0)", 13), ("Fetch(1)", 18), ("ListOffsets(2)", 11), ("Metadata(3)", 13)):
        (line,) = [line for line in listed.splitlines() if line.strip().startswith(f"{api}:")]
        assert f"to {newest} [usable: {newest}]" in line
    assert "UNKNOWN" not in listed
