"""`ottla pipeline verify --ranges` compares ranges of offsets. Without Spark, and without a look at files."""

import json
import subprocess
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewPartitions
from tests.interop.brokers import RunningBroker
from tests.pipeline.archiving import make_topic, produce
from tests.pipeline.pipeline_command import COMMAND, TIMEOUT_S, ottla
from tests.unit.pipeline.archive.archive_samples import a_batch

from ottla.pipeline.archive.store import Archive

# Spark cannot start with it.
NO_JAVA = "/nowhere"


def test_ranges_are_verified_without_spark(broker: RunningBroker, tmp_path: Path, topic_name: str) -> None:
    make_topic(broker.bootstrap, topic_name, 1)
    produce(broker.bootstrap, topic_name, ({"value": b"x", "partition": 0} for _ in range(30)))
    (tmp_path / "pipeline.toml").write_text(
        f'cluster = {{ bootstrap = "{broker.bootstrap}" }}\n'
        f'[sinks.archive]\ntopics = ["{topic_name}"]\npath = "archive"\n'
    )
    verify = ("pipeline", "verify", "--ranges", "--file", str(tmp_path))
    assert "is gone: it has no folder _manifests" in ottla(*verify, fails_with=1, JAVA_HOME=NO_JAVA)

    archive = Archive.at(str(tmp_path / "archive"))
    archive.commit(a_batch(0, [(topic_name, 0, 0, 10)]), lambda _: None)
    said = ottla(*verify, JAVA_HOME=NO_JAVA)
    assert f"{topic_name}-0: offsets 0 to 9, 0 records: every offset once, 20 newer offsets" in said
    assert "The archive is whole (by ranges of offsets; no file was read)." in said

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_partitions([NewPartitions(topic_name, 2)])[topic_name].result(30)
    produce(broker.bootstrap, topic_name, [{"value": b"x", "partition": 1}])
    (line,) = ottla_json(*verify, "--json")
    assert line["findings"] == [f"{topic_name}-1 offset 0: nothing of the partition is archived yet."]
    archive.commit(a_batch(1, [(topic_name, 1, 0, 1)]), lambda _: None)

    archive.commit(a_batch(1, [(topic_name, 0, 15, 30)]), lambda _: None)
    archive.commit(a_batch(2, [(topic_name, 0, 28, 30)]), lambda _: None)
    (line,) = ottla_json(*verify, "--json")
    assert (line["archive"], line["whole"]) == ("archive", False)
    assert line["findings"] == [
        f"{topic_name}-0 offset 10 to 14: not archived.",
        f"{topic_name}-0 offset 28 to 29: archived more than once.",
    ]

    (tmp_path / "archive" / "_manifests" / "0000000003.json").unlink()
    (line,) = ottla_json(*verify, "--json")
    assert "_manifests/0000000003.json: it is missing" in line["findings"][0]
    assert "Give only one of --ranges, --since and --deep" in ottla(*verify, "--deep", fails_with=1)
    since = ("pipeline", "verify", "--since", "soon", "--file", str(tmp_path))
    assert "--since is 'soon'. Give a date such as 2026-01-31" in ottla(*since, fails_with=1)


def ottla_json(*arguments: str) -> list[dict[str, Any]]:
    """The lines of a command that finds something."""
    done = subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 1, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
