"""The tour: started, looked at, ended with Ctrl-C; and no process of it is left."""

import re
import shlex
import subprocess
from pathlib import Path

from tests.pipeline.pipeline_command import ottla, running

from ottla.pipeline.config import load


def test_the_tour_shows_everything_and_ends_cleanly(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    arguments = ("demo", "--folder", str(folder), "--listen", "127.0.0.1:0")
    with running(tmp_path / "output", *arguments) as tour:
        tour.wait_for("Ctrl-C ends it", "files: batch ", "orders: batch ", "archive: batch ", "dead letters")
        bootstrap = load(folder).context.cluster.bootstrap
        assert '"total"' in ottla("consume", "orders", "--bootstrap", bootstrap, "--count", "1")
        assert "error.reason" in ottla("consume", "orders-dead", "-b", bootstrap, "--count", "1", "--json")
        for command in recommended(tour.text()):
            assert ottla(*command, JAVA_HOME="/nowhere")
        assert tour.press_ctrl_c() == 0
        text = tour.text()
        assert "Stopped: " in text
        assert "Exception" not in text
        assert "Traceback" not in text
    left = subprocess.run(["pgrep", "-f", str(folder)], capture_output=True, text=True, check=False)
    assert left.stdout == ""


def recommended(guide: str) -> list[list[str]]:
    """The commands of the guide on the pipeline that answer within seconds, without Spark. A long one is the last."""
    lines = re.findall(r"^  \S+ (pipeline .*?)(?:  .*)?$", guide, re.MULTILINE)
    *quick, last = map(shlex.split, lines)
    assert [command[:3] for command in quick] == [
        ["pipeline", "status", "--file"],
        ["pipeline", "sql", "--file"],
        ["pipeline", "verify", "--ranges"],
    ]
    assert last[:3] == ["pipeline", "verify", "--file"]
    return quick


def test_an_address_that_is_taken_is_named(tmp_path: Path) -> None:
    with running(
        tmp_path / "output", "serve", "--data", str(tmp_path / "d"), "--listen", "127.0.0.1:0"
    ) as broker:
        broker.wait_for("ready ")
        address = broker.text().partition("ready ")[2].split()[0]
        said = ottla("demo", "--folder", str(tmp_path / "demo"), "--listen", address, fails_with=1)
    assert "The broker did not start" in said
    assert "choose another with --listen" in said
