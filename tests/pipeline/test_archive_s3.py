"""The archive on a real S3 server: written, verified, merged, asked and loaded again."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer
from tests.interop.brokers import RunningBroker
from tests.pipeline.s3_jars import s3_jars

ROOT = Path(__file__).parents[2]


@pytest.fixture
def endpoint() -> Iterator[str]:
    """A server with an empty bucket."""
    jars = s3_jars()
    if isinstance(jars, str):
        pytest.skip(jars)
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    keys = {"aws_access_key_id": "key", "aws_secret_access_key": "secret", "region_name": "us-east-1"}
    boto3.client("s3", endpoint_url=url, **keys).create_bucket(Bucket="archives")
    yield url
    server.stop()


def test_an_archive_on_s3_is_whole_merged_and_comes_back_as_it_was(
    broker: RunningBroker, endpoint: str, tmp_path: Path, topic_name: str
) -> None:
    script = [sys.executable, "-m", "tests.pipeline.archive_on_s3"]
    ended = subprocess.run(
        [*script, broker.bootstrap, endpoint, topic_name, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    found = json.loads(ended.stdout.splitlines()[-1])
    assert found["whole"][-1] == "The archive is whole (compared with the cluster byte for byte)."
    assert (found["merged"], found["rows"], found["staging"]) == (200, 200, [])
    assert found["written twice"] == [True, False, "first"]
    assert found["same"]
