"""The configuration that `ottla serve` builds from its options."""

from pathlib import Path

import pytest

from ottla.cli.serve import broker_config, parser, serve
from ottla.model.config import BrokerConfig, ConfigError, Endpoint


def config_of(*arguments: str) -> BrokerConfig:
    return broker_config(parser().parse_args(arguments))


def test_the_defaults_are_the_loopback_address_and_the_folder_data() -> None:
    config = config_of()
    assert config.broker_listeners == [Endpoint("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT")]
    assert config.log_dirs == ("data",)
    assert config.node_id == 1


def test_options_override_set_and_set_overrides_the_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("node.id=3\nnum.partitions=3\nlog.dirs=/file\nlog.retention.hours=5\n")
    config = config_of(
        "--config", str(file), "--set", "num.partitions=4", "--set", "log.dirs=/set", "--data", "/option"
    )
    assert config.log_dirs == ("/option",)
    assert config.get_int("num.partitions") == 4
    assert config.get_int("log.retention.hours") == 5
    assert config.node_id == 3


def test_listeners_and_folders_of_the_file_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("listeners=PLAINTEXT://:1234,CONTROLLER://:1235\nlog.dir=/one\n")
    config = config_of("--config", str(file))
    assert [endpoint.port for endpoint in config.broker_listeners] == [1234]
    assert config.log_dirs == ("/one",)


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [("127.0.0.1:0", "127.0.0.1", 0), (":9092", "", 9092), ("[::1]:5", "::1", 5), ("::1:5", "::1", 5)],
)
def test_listen_takes_host_and_port(address: str, host: str, port: int) -> None:
    (endpoint,) = config_of("--listen", address).broker_listeners
    assert (endpoint.host, endpoint.port) == (host, port)


def test_logging_options_are_configs() -> None:
    config = config_of("--log-format", "json", "--log-level", "debug", "--node-id", "9")
    assert config.get_str("ottla.log.format") == "json"
    assert config.get_str("ottla.log.level") == "debug"
    assert config.node_id == 9


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "novalue"], "--set novalue: expected NAME=VALUE"),
        (["--listen", "9092"], "--listen 9092: expected HOST:PORT"),
        (["--listen", "host:http"], "expected HOST:PORT"),
        (["--config", "/no/such/file"], "--config /no/such/file cannot be read: No such file"),
        (["--node-id", "one"], "Invalid value one for configuration node.id"),
        (["--log-format", "xml"], "text, json"),
    ],
)
def test_a_wrong_option_is_rejected_with_what_is_expected(arguments: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        config_of(*arguments)
    assert message in str(raised.value)


def test_a_file_that_is_not_text_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not a text file"):
        config_of("--config", str(file))


def test_a_wrong_configuration_ends_with_code_2_and_all_its_errors(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert serve(["--set", "num.partitions=0", "--set", "num.partition=3"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "configuration num.partitions: Value must be at least 1" in shown.err
    assert "did you mean num.partitions" in shown.err
