"""Messages and exit codes of commands without a cluster."""

import socket
import subprocess
import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from ottla.admin.perf import percentiles_ms
from ottla.cli.main import main
from ottla.cli.output import print_table


class Done(NamedTuple):
    code: object
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture
def ottla(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs a command line in this process."""
    monkeypatch.delenv("OTTLA_BOOTSTRAP", raising=False)

    def run(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["ottla", *arguments])
        with pytest.raises(SystemExit) as left:
            main()
        return Done(left.value.code, *capfd.readouterr())

    return run


@pytest.fixture
def closed_address() -> str:
    """An address where nothing listens: the port was free just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def test_a_refused_connection_names_the_address_and_how_to_start_a_broker(
    ottla: Run, closed_address: str
) -> None:
    done = ottla("topics", "list", "--bootstrap", closed_address)
    assert done.code == 3
    assert f"No broker listens at {closed_address} (connection refused)" in done.err
    assert f"ottla serve --listen {closed_address}" in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["topics", "list", "--bootstrap", "nonsense"], "expected HOST:PORT"),
        (["topics", "alter", "t"], "nothing to change"),
        (["topics", "create", "t", "--config", "novalue"], "expected NAME=VALUE"),
        (["configs", "describe"], "set exactly one of"),
        (["produce", "t", "--acks", "2"], "is not one of 0, 1, all"),
        (["produce", "t", "--json", "--key-separator", ":"], "exclude each other"),
        (["consume", "t", "--from", "never"], "expected earliest"),
        (["perf", "produce", "t", "--compression", "zip"], "is not one of none, gzip"),
        (["bogus"], "No such command"),
    ],
)
def test_wrong_usage_ends_with_code_2_and_says_what_is_expected(
    ottla: Run, arguments: list[str], error: str
) -> None:
    done = ottla(*arguments)
    assert done.code == 2
    # Typer breaks long messages into lines inside a frame.
    assert error in " ".join(done.err.replace("│", " ").split())


def test_version_shows_versions(ottla: Run) -> None:
    done = ottla("version", "--json")
    assert done.code == 0
    assert '"ottla": "' in done.out


def test_help_lists_serve_beside_the_other_commands(ottla: Run) -> None:
    done = ottla("--help")
    assert done.code == 0
    for command in ("serve", "topics", "configs", "produce", "consume", "perf", "dump-log", "version"):
        assert f" {command} " in done.out


def test_the_configs_reference_needs_no_cluster(ottla: Run) -> None:
    done = ottla("configs", "reference")
    assert done.code == 0
    assert "| `retention.ms` |" in done.out


def test_dump_log_rejects_a_file_that_is_not_of_a_log(ottla: Run) -> None:
    done = ottla("dump-log", "pyproject.toml")
    assert done.code == 1
    assert "pyproject.toml" in done.err


def test_a_closed_pipe_ends_the_output_without_an_error() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "ottla.cli.main", "configs", "reference"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        process.wait(60)


def test_numbers_are_aligned_right_and_nothing_is_cut_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["NAME", ">COUNT"], [("a" * 300, 5), ("[red]b", None)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "a" * 300 + "      5"
    assert lines[2] == "[red]b"


def test_percentiles_are_taken_from_sorted_samples() -> None:
    assert percentiles_ms([0.003, 0.001, 0.002]) == {
        "p50": 2.0,
        "p95": 3.0,
        "p99": 3.0,
        "p99.9": 3.0,
        "max": 3.0,
    }
    assert percentiles_ms([]) == {}
