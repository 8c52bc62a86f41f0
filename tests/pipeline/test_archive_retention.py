"""Records that expire before they are archived: by `ottla pipeline status`, and by the archive's watch."""

import json
import time
from pathlib import Path

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from tests.interop.brokers import RunningBroker
from tests.pipeline.archiving import make_topic, produce
from tests.pipeline.pipeline_command import ottla
from tests.unit.pipeline.archive.archive_samples import a_batch

from ottla.pipeline.archive.lag import RetentionWatch
from ottla.pipeline.archive.store import Archive
from ottla.pipeline.stage import ClusterSettings

HOUR_MS = 3_600_000


def write_pipeline(folder: Path, broker: RunningBroker, topic: str) -> None:
    (folder / "pipeline.toml").write_text(
        f'cluster = {{ bootstrap = "{broker.bootstrap}" }}\n[sinks.archive]\ntopics = ["{topic}"]\npath = "archive"\n'
    )


def commit_batch(folder: Path, batch: int, offsets: dict[str, object]) -> None:
    """As Spark writes it into the checkpoint of the stage."""
    for name, text in (("offsets", f"v1\n{{}}\n{json.dumps(offsets)}"), ("commits", "v1\n{}")):
        path = folder / "checkpoints" / "archive" / name / str(batch)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_a_topic_whose_archive_falls_behind_is_reported_with_the_time_left(
    broker: RunningBroker, tmp_path: Path, topic_name: str
) -> None:
    make_topic(broker.bootstrap, topic_name, 1, retention_ms=str(100 * HOUR_MS))
    write_pipeline(tmp_path, broker, topic_name)
    status = ("pipeline", "status", "--file", str(tmp_path))
    ottla(*status)
    time_ms = time.time_ns() // 1_000_000 - 90 * HOUR_MS
    records = ({"value": b"x", "partition": 0, "timestamp": time_ms} for _ in range(30))
    produce(broker.bootstrap, topic_name, records)

    # The stage has not run yet, so all records are at risk.
    assert f"30 records of {topic_name}-0 are not archived, and start to expire in about 9 hours" in ottla(
        *status, fails_with=1
    )
    commit_batch(tmp_path, 0, {topic_name: {"0": 10}})
    said = ottla(*status, fails_with=1)
    assert said.startswith(f"ottla: archive: 20 records of {topic_name}-0 are not archived")
    assert "Run the archive now, or raise the topic's retention." in said
    commit_batch(tmp_path, 1, {topic_name: {"0": 30}})
    (line,) = [json.loads(text) for text in ottla(*status, "--json").splitlines()]
    assert (line["behind"], line["risks"]) == (0, [])

    # Of a topic that was created again, the records before the checkpoint are not archived either.
    commit_batch(tmp_path, 2, {topic_name: {"0": 30}, "@topicIds": {topic_name: "another"}})
    assert "30 records" in ottla(*status, fails_with=1)

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    (deleted,) = admin.delete_records([TopicPartition(topic_name, 0, 25)]).values()
    deleted.result(30)
    commit_batch(tmp_path, 3, {topic_name: {"0": 10}})
    assert f"15 offsets of {topic_name}-0 were deleted before they were archived" in ottla(
        *status, fails_with=1
    )


def test_the_watch_measures_which_offsets_of_the_topic_are_covered(
    broker: RunningBroker, tmp_path: Path, topic_name: str
) -> None:
    make_topic(broker.bootstrap, topic_name, 2)
    for partition, count in ((0, 30), (1, 5)):
        produce(broker.bootstrap, topic_name, ({"value": b"x", "partition": partition} for _ in range(count)))
    archive = Archive.at(str(tmp_path / "archive"))
    watch = RetentionWatch(ClusterSettings(broker.bootstrap), [topic_name], archive, dict)

    def coverage() -> list[tuple[int, ...]]:
        watch.check()
        assert [tuple(one.at) for one in watch.coverage] == [(topic_name, 0), (topic_name, 1)]
        return [(one.offsets, one.covered, one.holes, one.hole_offsets) for one in watch.coverage]

    assert coverage() == [(30, 0, 0, 0), (5, 0, 0, 0)]
    archive.commit(a_batch(0, [(topic_name, 0, 0, 10), (topic_name, 1, 0, 5)]), lambda _: None)
    assert coverage() == [(30, 10, 0, 0), (5, 5, 0, 0)]
    archive.commit(a_batch(1, [(topic_name, 0, 15, 30)]), lambda _: None)
    assert coverage() == [(30, 25, 1, 5), (5, 5, 0, 0)]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    (deleted,) = admin.delete_records([TopicPartition(topic_name, 0, 12)]).values()
    deleted.result(30)
    assert coverage() == [(18, 15, 1, 5), (5, 5, 0, 0)]
