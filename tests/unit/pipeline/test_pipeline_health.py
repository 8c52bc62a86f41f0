"""The health of a run over HTTP: what it says, and where it listens."""

import http.client
import json
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.unit.pipeline.fake_stages import FakeStage

from ottla.model.http_address import HttpAddress
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.health import Health, parse_address, serve_health
from ottla.pipeline.restarts import policy_of
from ottla.pipeline.runner import StageRun


def runs(**states: str) -> list[StageRun]:
    made = []
    for name, state in states.items():
        run = StageRun(name, FakeStage(name), policy_of(5), is_required=not name.startswith("optional"))
        run.state = state
        made.append(run)
    return made


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def get(url: str, path: str, method: str = "GET") -> tuple[int, Any]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=10)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        body = response.read()
        return response.status, json.loads(body) if body else None
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("states", "is_ready"),
    [
        ({"a": "running", "b": "done"}, True),
        ({"a": "running", "optional": "failed"}, True),
        ({"a": "running", "b": "waiting"}, False),
        ({"a": "failed"}, False),
    ],
)
def test_a_run_is_ready_when_its_required_stages_run_or_are_done(
    states: dict[str, str], is_ready: bool
) -> None:
    assert Health(runs(**states)).is_ready() == is_ready


def test_a_runner_that_does_not_poll_is_neither_live_nor_ready() -> None:
    clock = Clock()
    health = Health(runs(a="running"), clock)
    clock.now = 299
    assert health.is_live()
    clock.now = 300
    assert not health.is_live()
    assert not health.is_ready()
    health.polled()
    assert health.is_ready()


def test_the_endpoints_report_health_and_the_state_of_each_stage() -> None:
    clock = Clock()
    stages = runs(a="running", b="waiting")
    stages[1].note = "The broker is away."
    with serve_health(HttpAddress("127.0.0.1", 0), Health(stages, clock)) as url:
        assert get(url, "/healthz") == (200, {"live": True})
        status, document = get(url, "/readyz?verbose")
        assert (status, document["ready"]) == (503, False)
        assert document["stages"][1] == {
            "stage": "b",
            "state": "waiting",
            "note": "The broker is away.",
            "required": True,
            "rows": 0,
            "batch": None,
            "behind": None,
        }
        stages[1].state = "running"
        assert get(url, "/readyz")[0] == 200
        assert get(url, "/healthz", "HEAD") == (200, None)
        assert get(url, "/nothing")[0] == 404
        clock.now = 1000
        assert get(url, "/healthz") == (503, {"live": False})


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9404", HttpAddress("127.0.0.1", 9404)),
        ("localhost:0", HttpAddress("localhost", 0)),
        ("[::1]:9404", HttpAddress("::1", 9404)),
    ],
)
def test_a_loopback_address_is_accepted(text: str, address: HttpAddress) -> None:
    assert parse_address(text, allow_remote=False) == address


@pytest.mark.parametrize("text", ["0.0.0.0:9404", "[::]:9404", "10.1.2.3:9404", "example.org:9404"])
def test_an_address_that_others_reach_must_be_asked_for(text: str) -> None:
    with pytest.raises(PipelineError, match="--metrics-remote"):
        parse_address(text, allow_remote=False)
    assert parse_address(text, allow_remote=True).port == 9404


@pytest.mark.parametrize("text", ["", "9404", ":9404", "127.0.0.1", "127.0.0.1:http", "127.0.0.1:70000"])
def test_an_address_that_is_none_is_rejected(text: str) -> None:
    with pytest.raises(PipelineError, match="Give HOST:PORT"):
        parse_address(text, allow_remote=True)


def test_an_address_that_is_taken_is_named() -> None:
    health = Health([])
    with serve_health(HttpAddress("127.0.0.1", 0), health) as url:
        port = urlsplit(url).port
        assert port is not None
        with (
            pytest.raises(PipelineError, match=f"cannot listen on 127.0.0.1:{port}"),
            serve_health(HttpAddress("127.0.0.1", port), health),
        ):
            pass
