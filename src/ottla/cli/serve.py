"""`ottla serve`: builds a broker's configuration from options and a properties file, and runs the broker."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ottla.model.config import BrokerConfig, ConfigError

_BAD_CONFIG = 2
_DEFAULT_DATA = "data"
DEFAULT_LISTEN = "127.0.0.1:9092"
DESCRIPTION = "Run a broker. Prints `ready HOST:PORT` when it serves; SIGTERM or Ctrl-C stops it cleanly."


def serve(arguments: Sequence[str]) -> int:
    """Returns the exit code: 0 after a clean stop, 2 for a wrong configuration."""
    options = parser().parse_args(arguments)
    ready_file = Path(options.ready_file) if options.ready_file else None
    try:
        config = broker_config(options)
        if options.workers > 1:
            from ottla.cli.workers import serve_with_workers

            return serve_with_workers(config, options.workers, ready_file)
    except ConfigError as error:
        print("ottla serve: the configuration is refused:", file=sys.stderr)
        for problem in error.errors:
            print(f"  {problem}", file=sys.stderr)
        return _BAD_CONFIG
    from ottla.broker.run import run_broker

    return run_broker(config, ready_file)


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(prog="ottla serve", description=DESCRIPTION, allow_abbrev=False)
    add = result.add_argument
    add("--data", metavar="DIR", help=f"keep the data in this folder: log.dirs (default: {_DEFAULT_DATA})")
    add(
        "--listen",
        metavar="HOST:PORT",
        help=f"listen here; port 0 picks a free one (default: {DEFAULT_LISTEN})",
    )
    add("--node-id", metavar="N", help="the id of this node in the cluster: node.id (default: 1)")
    add("--config", metavar="FILE", help="a server.properties, in Kafka's format and with Kafka's names")
    add(
        "--set",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="set a config, also over that of the file; may be repeated",
    )
    add(
        "--ready-file",
        metavar="FILE",
        help="write HOST:PORT to this file when the broker serves, and remove it when the broker stops",
    )
    add(
        "--workers",
        metavar="N",
        type=_workers,
        default=1,
        help="run N brokers on this host, one for each core that it may use (default: 1)",
    )
    add(
        "--metrics",
        metavar="HOST:PORT",
        help="serve /metrics over HTTP, for Prometheus: ottla.metrics.address; port 0 takes a free one",
    )
    add(
        "--metrics-remote",
        action="store_const",
        const="true",
        help="let --metrics use an address that other machines reach: ottla.metrics.remote",
    )
    add(
        "--log-format",
        metavar="FORMAT",
        help="the format of log lines, text or json: ottla.log.format (default: text)",
    )
    add("--log-level", metavar="LEVEL", help="debug, info, warning or error: ottla.log.level (default: info)")
    return result


def _workers(text: str) -> int:
    from ottla.cli.worker_plan import WORKERS_MAX

    if not text.isdecimal() or not 1 <= int(text) <= WORKERS_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {WORKERS_MAX}")
    return int(text)


def broker_config(options: argparse.Namespace) -> BrokerConfig:
    """The named options override --set, and --set overrides the file. Raises ConfigError."""
    file_text = _read(options.config) if options.config else ""
    overrides = dict(_parse_pair(pair) for pair in options.set)
    named = {
        "log.dirs": options.data,
        "listeners": _listener(options.listen) if options.listen else None,
        "node.id": options.node_id,
        "ottla.metrics.address": options.metrics,
        "ottla.metrics.remote": options.metrics_remote,
        "ottla.log.format": options.log_format,
        "ottla.log.level": options.log_level,
    }
    overrides |= {name: value for name, value in named.items() if value is not None}
    config = BrokerConfig.load(file_text, overrides)
    missing = {}
    if not config.is_set("log.dirs") and not config.is_set("log.dir"):
        missing["log.dirs"] = _DEFAULT_DATA
    if not config.is_set("listeners"):
        missing["listeners"] = _listener(DEFAULT_LISTEN)
    return BrokerConfig.load(file_text, overrides | missing) if missing else config


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError([f"--config {path} cannot be read: {error.strerror}"]) from None
    except UnicodeDecodeError as error:
        raise ConfigError([f"--config {path} is not a text file in UTF-8: {error}"]) from None


def _parse_pair(pair: str) -> tuple[str, str]:
    name, separator, value = pair.partition("=")
    if not separator or not name.strip():
        raise ConfigError([f"--set {pair}: expected NAME=VALUE, e.g. --set num.partitions=3"])
    return name.strip(), value


def _listener(address: str) -> str:
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdigit():
        raise ConfigError([f"--listen {address}: expected HOST:PORT, e.g. --listen {DEFAULT_LISTEN}"])
    if ":" in host and not host.startswith("["):
        host = f"[{host}]"
    return f"PLAINTEXT://{host}:{port}"
