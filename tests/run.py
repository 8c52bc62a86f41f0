"""The test runner behind `make check` and `make test`: runs all steps, even if one fails, and prints a line for each.

The steps run one after the other, but for the checks and the simulation, which run in the background. The simulation
has the lowest priority, and uses the cores while interop and pipeline tests wait. Its time is virtual, so it misses no
timeout. Pipeline tests wait for Spark half of the time, so a third worker makes them a sixth faster. The interop tests
would gain more, but at that load a client library crashed. Both at the same time put a load of 16 on two cores: now and
then a client, or Apache Kafka itself, missed a timeout.

The output of pytest is shown while it runs and kept in `.cache/test-logs`, so a test that hangs can be found there.
Beside it is pytest's report, with the seconds of every test.

`make check` runs without Spark and the database drivers. Tests that need them are skipped then, with the reason
(tests/extras.py); `make test` runs them all and fails if a package is missing.

The last line of the output is `N passed, N failed, N skipped`: the sums over the pytest runs. A step that failed
without a failing test (a linter, a crash, no tests found) counts as one failure.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TextIO

from tests.extras import REQUIRE_EXTRAS, missing_packages

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent
SEEDS_IN_CHECK = 1
SEEDS = 30
CLUSTER_SEEDS = 100
QUORUM_SEEDS = 100
EXAMPLES_PERCENT_IN_CHECK = 10
FUZZ_SECONDS = 60
WORKERS = 2
PIPELINE_WORKERS = 3
SLOWEST = 25
LOGS = ROOT / ".cache" / "test-logs"
LOWEST_PRIORITY = 19
POLL_S = 0.2
# The tests of a file share brokers and Spark sessions. tests/conftest.py sorts the files.
BY_FILE = ("--dist", "loadfile", "--no-loadscope-reorder")
# A pytest worker that dies ends the run as a failure. If xdist replaced it, it would wait for ever for the rest of
# the dead worker's file.
NO_NEW_WORKERS = "--max-worker-restart=0"
# pytest names a test that hangs, so its timeout must be shorter than this runner's.
UNIT = ("tests/unit", "tests/tidy", "--timeout=120")
OPTIONAL_TOOLS = {
    "java": "no tests against Apache Kafka's own client, tools and file formats",
    "mvn": "Apache Kafka's jars cannot be fetched (OTTLA_KAFKA_LIBS may name a folder that has them)",
    "node": "kafkajs is not tested",
    "npm": "kafkajs cannot be installed",
    "prometheus": "Debian's package is fetched for the tests of the dashboard and the alerts, if apt-get is there",
}
# Without Spark mypy takes its classes for Any: code that derives from them or returns them cannot be checked strictly.
MYPY_WITHOUT_SPARK = """
[[tool.mypy.overrides]]
module = ["pyspark.*", "deltalake.*", "duckdb.*"]
ignore_missing_imports = true

[[tool.mypy.overrides]]
module = ["ottla.pipeline.*", "pyspark_ottla", "tests.pipeline.*", "tests.unit.pipeline.*", "bench.*"]
disallow_subclassing_any = false
disallow_untyped_decorators = false
warn_return_any = false
warn_unused_ignores = false
"""


@dataclass(frozen=True)
class Step:
    """A step in the background prints its output at its end, and only if it fails."""

    name: str
    command: Sequence[str | Path]
    timeout_s: int = 300
    is_pytest: bool = False
    is_background: bool = False
    niceness: int = 0
    environment: dict[str, str] = field(default_factory=dict)


@dataclass
class Result:
    step: Step
    exit_code: int
    seconds: float
    output: str
    passed: int = 0
    failed: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    seconds_of: dict[str, float] = field(default_factory=dict)

    @property
    def is_good(self) -> bool:
        return self.exit_code == 0 and self.failed == 0

    def line(self) -> str:
        verdict = "ok" if self.is_good else "FAILED"
        counts = f"  {self.passed} passed, {self.failed} failed" if self.step.is_pytest else ""
        if self.skipped:
            counts += f", {self.skipped.total()} skipped"
        return f"{self.step.name:<28} {verdict:<7} {self.seconds:7.1f} s{counts}"


def checks() -> list[Step]:
    commands: dict[str, Sequence[str | Path]] = {
        "format": [BIN / "ruff", "format", "--check", "."],
        "lint": [BIN / "ruff", "check", "."],
        "types": [BIN / "mypy", "--config-file", mypy_config()],
        "contracts": [BIN / "lint-imports", "--no-logo"],
    }
    return [Step(name, command, is_background=True) for name, command in commands.items()]


def mypy_config() -> Path:
    """pyproject.toml; without Spark a copy that does not ask for its types."""
    config = ROOT / "pyproject.toml"
    if "pyspark" not in missing_packages():
        return config
    LOGS.mkdir(parents=True, exist_ok=True)
    copy = LOGS / "mypy-without-spark.toml"
    copy.write_text(config.read_text() + MYPY_WITHOUT_SPARK)
    return copy


def quick_tests() -> list[Step]:
    """What `make check` runs, in one run of pytest, because each run collects the tests again."""
    step = pytest_step(
        "unit, tidy and simulation",
        *UNIT,
        "tests/simulation",
        "-m",
        "not slow",
        timeout_s=600,
        environment={
            "OTTLA_SIM_SEEDS": str(SEEDS_IN_CHECK),
            "OTTLA_EXAMPLES_PERCENT": str(EXAMPLES_PERCENT_IN_CHECK),
        },
    )
    return [step]


def all_tests() -> list[Step]:
    """The timeouts are for a step that hangs. A busy machine may take three times as long as a quiet one."""
    return [
        pytest_step("unit and tidy tests", *UNIT, timeout_s=1200),
        pytest_step("interop tests", "tests/interop", *BY_FILE, timeout_s=2400),
        pytest_step("pipeline tests", "tests/pipeline", *BY_FILE, timeout_s=2400, workers=PIPELINE_WORKERS),
        pytest_step(
            f"fuzz, {FUZZ_SECONDS} s",
            "tests/fuzz",
            timeout_s=FUZZ_SECONDS * 4,
            environment={"OTTLA_FUZZ_SECONDS": str(FUZZ_SECONDS)},
        ),
    ]


def simulation() -> Step:
    """It gets what the other tests leave, so it may take as long as all of them together."""
    step = pytest_step(
        "simulation",
        "tests/simulation",
        "--timeout=3600",
        timeout_s=4200,
        environment={
            "OTTLA_SIM_SEEDS": str(SEEDS),
            "OTTLA_SIM_CLUSTER_SEEDS": str(CLUSTER_SEEDS),
            "OTTLA_SIM_QUORUM_SEEDS": str(QUORUM_SEEDS),
        },
    )
    return replace(step, is_background=True, niceness=LOWEST_PRIORITY)


def pytest_step(
    name: str,
    *args: str,
    timeout_s: int,
    workers: int = WORKERS,
    environment: dict[str, str] | None = None,
) -> Step:
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(workers), NO_NEW_WORKERS, *args]
    return Step(name, command, timeout_s, is_pytest=True, environment=environment or {})


def run(step: Step) -> Result:
    LOGS.mkdir(parents=True, exist_ok=True)
    report = _log_path(step, "xml")
    report.unlink(missing_ok=True)
    command = [*step.command, f"--junitxml={report}"] if step.is_pytest else step.command
    started = time.monotonic()
    exit_code, output = execute(command, step)
    result = Result(step, exit_code, time.monotonic() - started, output)
    if step.is_pytest:
        count(report, result)
    if result.exit_code and not result.failed:
        result.failed = 1
    return result


def _log_path(step: Step, suffix: str) -> Path:
    return LOGS / f"{step.name.replace(' ', '-').replace(',', '')}.{suffix}"


def execute(command: Sequence[str | Path], step: Step) -> tuple[int, str]:
    """Returns the exit code and all output. Kills a step that takes too long, with the processes that it started."""
    log = _log_path(step, "log")
    with log.open("wb") as written, log.open(errors="replace") as shown:
        process = subprocess.Popen(
            ["nice", "-n", str(step.niceness), *command],
            cwd=ROOT,
            env={**os.environ, **step.environment},
            stdout=written,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        _set_niceness_of_session(process.pid, step.niceness)
        deadline = time.monotonic() + step.timeout_s
        while (exit_code := _wait(process)) is None and time.monotonic() < deadline:
            _show(shown, step)
        if exit_code is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            _show(shown, step)
            print(f"\n{step.name}: killed after {step.timeout_s} s", flush=True)
            exit_code = 124
        _show(shown, step)
    return exit_code, log.read_text(errors="replace")


def _set_niceness_of_session(pid: int, niceness: int) -> None:
    """Linux shares the cores between sessions first, so a process that is nice in a session of its own gives way to
    nobody. Other systems have no such file.
    """
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(niceness))


def _wait(process: "subprocess.Popen[bytes]") -> int | None:
    try:
        return process.wait(POLL_S)
    except subprocess.TimeoutExpired:
        return None


def _show(log: TextIO, step: Step) -> None:
    """Prints the new output of a step that is not in the background."""
    if not step.is_background:
        sys.stdout.write(log.read())
        sys.stdout.flush()


def count(report: Path, result: Result) -> None:
    """Reads pytest's report. There is none if pytest crashed; its exit code says so."""
    if not report.exists():
        return
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname', '').removeprefix('tests.')}::{case.get('name')}"
        result.seconds_of[name] = float(case.get("time", 0))
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            result.failed += 1
        elif skipped is not None:
            result.skipped[_reason(skipped)] += 1
        else:
            result.passed += 1


def _reason(skipped: ElementTree.Element) -> str:
    message = skipped.get("message", "no reason given")
    if (
        message == "collection skipped"
    ):  # of a module, for which pytest writes the reason at the end of the text
        return (skipped.text or "").rpartition("Skipped: ")[2].rstrip("')")
    return message


def run_and_report(step: Step) -> Result:
    result = run(step)
    print(f"\n{result.line()}", flush=True)
    if not result.is_good and result.step.is_background:
        print(f"--- {' '.join(map(str, result.step.command))}\n{result.output.rstrip()}\n---", flush=True)
    return result


def summary(results: list[Result], seconds: float, *, everything: bool) -> None:
    print(f"\nsummary ({seconds:.0f} s)")
    for result in results:
        print(f"  {result.line()}")
    if everything:
        print("\nthe slowest tests")
        seconds_of = {name: seconds for result in results for name, seconds in result.seconds_of.items()}
        for name in sorted(seconds_of, key=lambda name: -seconds_of[name])[:SLOWEST]:
            print(f"  {seconds_of[name]:7.1f} s  {name}")
    for tool, consequence in OPTIONAL_TOOLS.items():
        if shutil.which(tool) is None:
            print(f"  missing: {tool}: {consequence}")
    for reason, times in sum((result.skipped for result in results), Counter[str]()).items():
        print(f"  skipped {times}: {reason}")
    passed, failed = (sum(getattr(result, name) for result in results) for name in ("passed", "failed"))
    print(f"{passed} passed, {failed} failed, {sum(result.skipped.total() for result in results)} skipped")


def main(arguments: Sequence[str]) -> int:
    if list(arguments) not in (["check"], ["all"]):
        print("usage: python -m tests.run check|all", file=sys.stderr)
        return 2
    # A shell that starts this in the background makes it ignore SIGINT. The brokers that the tests start would inherit
    # that, and the tests interrupt them.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    everything = list(arguments) == ["all"]
    if everything:
        os.environ[REQUIRE_EXTRAS] = "1"
    # Every pytest worker and every broker that a test starts would compile the code again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    started = time.monotonic()
    background = [*checks(), simulation()] if everything else checks()
    foreground = all_tests() if everything else quick_tests()
    with ThreadPoolExecutor(max_workers=1) as pool:
        futures = [pool.submit(run_and_report, step) for step in background]
        tested = [run_and_report(step) for step in foreground]
        results = [future.result() for future in futures] + tested
    summary(results, time.monotonic() - started, everything=everything)
    return 0 if all(result.is_good for result in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
